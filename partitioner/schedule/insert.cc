// Where in each rank's list its messages stand.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "partitioner/base/error.h"
#include "partitioner/schedule/from_flow.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/schedule/unit_time.h"

namespace stagecraft {
namespace {

// Faults that would make timing the order meaningless.
void check_order(const Placement& placement, const std::vector<std::vector<Action>>& order,
                 int micro_batches) {
  if (static_cast<int>(order.size()) != placement.ranks()) {
    throw ConfigError(fmt::format("the order has {} lists, but the plan has {} ranks", order.size(),
                                  placement.ranks()));
  }
  for (size_t r = 0; r < order.size(); ++r) {
    for (const Action& action : order[r]) {
      if (is_message(action)) {
        throw ConfigError(
            fmt::format("rank {}: {} in an order without messages; give all S and R or none", r,
                        to_string(action)));
      }
      if (!is_compute(action)) continue;
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
        if (!is_compute(a) || a.kind == ActionKind::kBackwardWeight) continue;
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

// Where a message comes from and, in the destination's list, the action that it may not precede:
// none for what the first actions use, which have nothing to be ahead of.
struct MessagePlace {
  Place producer;
  std::optional<Place> gate;
};

std::vector<MessagePlace> place_messages(const std::vector<Message>& table, const Flow& flow,
                                         const Placement& placement, const Places& places,
                                         size_t receive_ahead) {
  std::vector<MessagePlace> result;
  for (const Message& message : table) {
    size_t first_use = std::numeric_limits<size_t>::max();
    for (const Hop& hop : message.direction == Direction::kForward ? flow.forward : flow.backward) {
      if (hop.from_stage != message.src_stage ||
          placement.rank_of_stage[hop.to_stage] != message.dst_rank) {
        continue;
      }
      const Place use = places.of(message.direction, hop.to_stage, message.micro_batch);
      first_use = std::min(first_use, use.index);
    }
    MessagePlace place{
        .producer = places.of(message.direction, message.src_stage, message.micro_batch),
        .gate = {}};
    if (first_use >= receive_ahead)
      place.gate = Place{.rank = message.dst_rank, .index = first_use - receive_ahead};
    result.push_back(place);
  }
  return result;
}

// The times of the global order. Actions stand at their start in the unit-cost simulation, but for
// two kinds. A stage without gradients waits for nobody and would run all its micro-batches at
// once, holding what it computed: its F moves to right before the first message that wants it. What
// ends a list and is neither F nor backward (the step) moves behind all messages. The order inside
// a list stays, and no action moves behind what needs it.
class GlobalTimes {
 public:
  GlobalTimes(const Flow& flow, const std::vector<std::vector<Action>>& order,
              const OrderTimes& times, const std::vector<MessagePlace>& messages)
      : flow_(flow),
        order_(order),
        times_(times),
        messages_(messages),
        message_times_(messages.size(), kOpen) {
    for (size_t id = 0; id < messages.size(); ++id) {
      sent_by_[{messages[id].producer.rank, messages[id].producer.index}].push_back(id);
    }
    for (const auto& actions : order) {
      starts_.emplace_back(actions.size(), kOpen);
      for (size_t i = actions.size(); i > 0 && !is_compute(actions[i - 1]); --i) {
        starts_.back()[i - 1] = kEnd;
      }
    }
  }

  int64_t start_of(const Place& place) {
    const int64_t earliest = times_.start[place.rank][place.index];
    int64_t& start = starts_[place.rank][place.index];
    if (start == kUnderWay)
      return earliest;  // two ranks that wait for each other: stay where it is
    if (start != kOpen) return start;
    start = kUnderWay;
    int64_t latest = kEnd;
    if (is_delayed(order_[place.rank][place.index])) {
      if (place.index + 1 < order_[place.rank].size()) {
        latest = start_of({.rank = place.rank, .index = place.index + 1});
      }
      for (size_t id : sent_by_[{place.rank, place.index}]) {
        latest = std::min(latest, time_of_message(id));
      }
    }
    start = latest == kEnd ? earliest : latest - 1;
    return start;
  }

  // When the producer is done and the destination is near the use.
  int64_t time_of_message(size_t id) {
    if (message_times_[id] == kOpen) {
      const auto& [producer, gate] = messages_[id];
      const int64_t made = times_.end[producer.rank][producer.index];
      message_times_[id] = gate ? std::max(made, start_of(*gate)) : made;
    }
    return message_times_[id];
  }

 private:
  static constexpr int64_t kOpen = -1, kUnderWay = -2, kEnd = std::numeric_limits<int64_t>::max();

  bool is_delayed(const Action& action) const {
    return is_compute(action) && !flow_.has_backward[action.stage];
  }

  const Flow& flow_;
  const std::vector<std::vector<Action>>& order_;
  const OrderTimes& times_;
  const std::vector<MessagePlace>& messages_;
  std::map<std::pair<int, size_t>, std::vector<size_t>> sent_by_;
  std::vector<std::vector<int64_t>> starts_;
  std::vector<int64_t> message_times_;
};

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
  return insert_messages(graph, derive_flow(graph, placement), placement, order, micro_batch_sizes,
                         receive_ahead);
}

Schedule insert_messages(const BlockGraph& graph, const Flow& flow, const Placement& placement,
                         const std::vector<std::vector<Action>>& order,
                         const std::vector<int64_t>& micro_batch_sizes, int receive_ahead) {
  const int micro_batches = static_cast<int>(micro_batch_sizes.size());
  check(micro_batches > 0 && receive_ahead >= 0,
        "micro-batches and receive_ahead are not negative");
  check_order(placement, order, micro_batches);
  const OrderTimes times = time_order(flow, order, micro_batches);
  const Places places(order);

  Schedule schedule{.messages = message_table(graph, flow, placement, micro_batch_sizes),
                    .ranks = std::vector<std::vector<Action>>(order.size())};
  const auto message_places = place_messages(schedule.messages, flow, placement, places,
                                             static_cast<size_t>(receive_ahead));
  GlobalTimes global(flow, order, times, message_places);
  std::vector<Event> events;
  for (size_t r = 0; r < order.size(); ++r) {
    for (size_t i = order[r].size(); i-- > 0;) {  // last first, which keeps the recursion flat
      const int rank = static_cast<int>(r);
      events.push_back({.time = global.start_of({.rank = rank, .index = i}),
                        .compute = true,
                        .tie = rank,
                        .index = i});
    }
  }
  for (size_t id = 0; id < message_places.size(); ++id) {
    events.push_back({.time = global.time_of_message(id),
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
      if (!is_message(action)) continue;
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
