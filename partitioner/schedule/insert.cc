// Where in each rank's list its messages stand.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "partitioner/base/error.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/schedule/unit_time.h"

namespace stagecraft {
namespace {

bool is_message(ActionKind kind) {
  return kind == ActionKind::kSend || kind == ActionKind::kReceive;
}

bool is_compute(ActionKind kind) {
  return !is_message(kind) && kind != ActionKind::kReduce && kind != ActionKind::kStep;
}

// Faults that would make timing the order meaningless.
void check_order(const Placement& placement, const std::vector<std::vector<Action>>& order,
                 int micro_batches) {
  if (static_cast<int>(order.size()) != placement.ranks()) {
    throw ConfigError(fmt::format("the order has {} lists, but the plan has {} ranks", order.size(),
                                  placement.ranks()));
  }
  for (size_t r = 0; r < order.size(); ++r) {
    for (const Action& action : order[r]) {
      if (is_message(action.kind)) {
        throw ConfigError(
            fmt::format("rank {}: {} in an order without messages; give all S and R or none", r,
                        to_string(action)));
      }
      if (!is_compute(action.kind)) continue;
      if (action.stage < 0 || action.stage >= placement.stages()) {
        throw ConfigError(fmt::format("rank {}: {} names stage {}, allowed are 0 to {}", r,
                                      to_string(action), action.stage, placement.stages() - 1));
      }
      if (action.micro_batch < 0 || action.micro_batch >= micro_batches) {
        throw ConfigError(fmt::format("rank {}: {} names micro-batch {}, allowed are 0 to {}", r,
                                      to_string(action), action.micro_batch, micro_batches - 1));
      }
      if (placement.rank_of_stage[action.stage] != static_cast<int>(r)) {
        throw ConfigError(fmt::format("rank {}: {} belongs to rank {}, which hosts stage {}", r,
                                      to_string(action), placement.rank_of_stage[action.stage],
                                      action.stage));
      }
    }
  }
}

struct Place {
  int rank = -1;
  size_t index = 0;
};

// Position of each (kind, stage, micro-batch); B stands for I as well.
class Places {
 public:
  explicit Places(const std::vector<std::vector<Action>>& order) {
    for (size_t r = 0; r < order.size(); ++r) {
      for (size_t i = 0; i < order[r].size(); ++i) {
        const Action& a = order[r][i];
        if (!is_compute(a.kind) || a.kind == ActionKind::kBackwardWeight) continue;
        places_.try_emplace({a.kind == ActionKind::kForward, a.stage, a.micro_batch},
                            Place{.rank = static_cast<int>(r), .index = i});
      }
    }
  }
  Place of(Direction direction, int stage, int micro_batch) const {
    const auto place = places_.find({direction == Direction::kForward, stage, micro_batch});
    if (place == places_.end()) {
      throw ConfigError(fmt::format("the order lacks {}{}.{}",
                                    direction == Direction::kForward ? 'F' : 'B', stage,
                                    micro_batch));
    }
    return place->second;
  }

 private:
  std::map<std::tuple<bool, int, int>, Place> places_;
};

// For each message of one micro-batch the stages on its destination rank that use it.
std::vector<std::vector<int>> users_of(const Flow& flow, const Placement& placement,
                                       const std::vector<Message>& transfers) {
  std::vector<std::vector<int>> users(transfers.size());
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Message& message = transfers[i];
    const auto& hops = message.direction == Direction::kForward ? flow.forward : flow.backward;
    for (const Hop& hop : hops) {
      if (hop.from_stage == message.src_stage &&
          placement.rank_of_stage[hop.to_stage] == message.dst_rank) {
        users[i].push_back(hop.to_stage);
      }
    }
  }
  return users;
}

// One event of the global order; a message stands before compute of the same time.
struct Event {
  int64_t time;
  bool compute;
  int tie;       // rank of a compute action, number of a message
  size_t index;  // in the rank's list, for compute
  auto key() const { return std::tie(time, compute, tie, index); }
};

}  // namespace

Schedule insert_messages(const BlockGraph& graph, const Placement& placement,
                         const std::vector<std::vector<Action>>& order,
                         const std::vector<int64_t>& micro_batch_sizes, int receive_ahead) {
  const int micro_batches = static_cast<int>(micro_batch_sizes.size());
  check(micro_batches > 0 && receive_ahead >= 0,
        "micro-batches and receive_ahead are not negative");
  check_order(placement, order, micro_batches);
  const Flow flow = derive_flow(graph, placement);
  const OrderTimes times = time_order(flow, order, micro_batches);
  const Places places(order);

  std::vector<Event> events;
  for (size_t r = 0; r < order.size(); ++r) {
    // Messages wait for their consumer, the step at the end waits for them.
    size_t work = order[r].size();
    while (work > 0 && !is_compute(order[r][work - 1].kind)) --work;
    for (size_t i = 0; i < order[r].size(); ++i) {
      events.push_back({.time = i < work ? times.start[r][i] : std::numeric_limits<int64_t>::max(),
                        .compute = true,
                        .tie = static_cast<int>(r),
                        .index = i});
    }
  }
  Schedule schedule{.messages = message_table(graph, placement, micro_batch_sizes),
                    .ranks = std::vector<std::vector<Action>>(order.size())};
  const size_t per_micro_batch = schedule.messages.size() / micro_batch_sizes.size();
  const auto users = users_of(
      flow, placement, {schedule.messages.begin(), schedule.messages.begin() + per_micro_batch});
  for (size_t id = 0; id < schedule.messages.size(); ++id) {
    const Message& message = schedule.messages[id];
    const Place producer = places.of(message.direction, message.src_stage, message.micro_batch);
    size_t first_use = order[message.dst_rank].size();
    for (int stage : users[id % per_micro_batch]) {
      first_use =
          std::min(first_use, places.of(message.direction, stage, message.micro_batch).index);
    }
    const size_t ahead = std::min(first_use, static_cast<size_t>(receive_ahead));
    // Not before the destination is near its use; just in time keeps the sender's copy its only
    // one.
    const int64_t gate = times.start[message.dst_rank][first_use - ahead];
    events.push_back({.time = std::max(times.end[producer.rank][producer.index], gate),
                      .compute = false,
                      .tie = static_cast<int>(id),
                      .index = 0});
  }
  std::sort(events.begin(), events.end(),
            [](const Event& a, const Event& b) { return a.key() < b.key(); });
  for (const Event& event : events) {
    if (event.compute) {
      schedule.ranks[event.tie].push_back(order[event.tie][event.index]);
      continue;
    }
    const Message& message = schedule.messages[event.tie];
    schedule.ranks[message.src_rank].push_back({.kind = ActionKind::kSend,
                                                .stage = message.src_stage,
                                                .micro_batch = message.micro_batch,
                                                .message = event.tie});
    schedule.ranks[message.dst_rank].push_back({.kind = ActionKind::kReceive,
                                                .stage = message.dst_stage,
                                                .micro_batch = message.micro_batch,
                                                .message = event.tie});
  }
  return schedule;
}

Schedule complete_order(const BlockGraph& graph, const Placement& placement,
                        const std::vector<std::vector<Action>>& order,
                        const std::vector<int64_t>& micro_batch_sizes) {
  Schedule schedule{.messages = message_table(graph, placement, micro_batch_sizes), .ranks = order};
  const int messages = static_cast<int>(schedule.messages.size());
  for (size_t r = 0; r < order.size(); ++r) {
    for (Action& action : schedule.ranks[r]) {
      if (!is_message(action.kind)) continue;
      if (action.message < 0 || action.message >= messages) {
        throw ConfigError(fmt::format("rank {}: {} names message {}, but the plan has {} messages",
                                      r, to_string(action), action.message, messages));
      }
      const Message& message = schedule.messages[action.message];
      action.stage = action.kind == ActionKind::kSend ? message.src_stage : message.dst_stage;
      action.micro_batch = message.micro_batch;
    }
  }
  return schedule;
}

}  // namespace stagecraft
