#include "partitioner/solver/chain_steps.h"

#include <utility>

#include "partitioner/schedule/from_flow.h"

namespace stagecraft {
namespace {

constexpr int64_t kMostKeptActions = 4'000'000;  // some hundred bytes each

}  // namespace

ChainSteps::ChainSteps(const StageTable& table, const SplitTarget& target)
    : table_(table),
      target_(target),
      pace_(Pace::of(target.micro_batch_sizes, table.costs().micro_batch())) {}

std::shared_ptr<const ChainSteps::Pattern> ChainSteps::pattern_of(const Chain& chain,
                                                                  std::vector<int64_t> key) const {
  const std::lock_guard lock(mutex_);
  if (kept_actions_ > kMostKeptActions) {
    patterns_.clear();
    kept_actions_ = 0;
  }
  std::shared_ptr<const Pattern>& pattern = patterns_[std::move(key)];
  if (!pattern) {
    const Placement placement = placement_of(table_, target_, chain);
    const Flow flow = derive_flow(table_.graph(), placement);
    Schedule schedule =
        make_schedule(target_.schedule, table_.graph(), flow, placement, target_.micro_batch_sizes);
    StepClock clock(flow, placement, schedule);
    pattern = std::make_shared<const Pattern>(
        Pattern{.schedule = std::move(schedule), .clock = std::move(clock)});
    kept_actions_ += pattern->clock.actions();
  }
  return pattern;
}

int64_t ChainSteps::step(const Chain& chain, const std::vector<int64_t>& backward_more) const {
  const int p = target_.stages();
  std::vector<int64_t> forward(static_cast<size_t>(p) * p, 0), backward(forward);
  table_.add_traffic(chain.edges, target_.relays, forward, backward);
  std::vector<int64_t> key;
  for (int64_t bytes : forward) key.push_back(bytes > 0 ? 1 : 0);
  for (int64_t bytes : backward) key.push_back(bytes > 0 ? 1 : 0);
  std::vector<const StageCost*> costs;
  for (int s = 0; s < p; ++s) {
    costs.push_back(&table_.cost(table_.costs().kind_of_rank(chain.ranks[s]), chain.edges[s]));
    key.push_back(costs[s]->has_backward ? 1 : 0);
  }
  key.insert(key.end(), chain.ranks.begin(), chain.ranks.end());
  const std::shared_ptr<const Pattern> pattern = pattern_of(chain, std::move(key));

  const int64_t last = pace_.count - 1;
  std::vector<int64_t> compute, transfer;
  compute.reserve(pattern->clock.actions());
  for (const auto& actions : pattern->schedule.ranks)
    for (const Action& action : actions) {
      if (!is_compute(action)) {
        compute.push_back(0);
        continue;
      }
      const StageCost& cost = *costs[action.stage];
      const int64_t time = action.kind == ActionKind::kForward
                               ? cost.forward
                               : cost.backward + backward_more[action.stage];
      compute.push_back(action.micro_batch == last ? pace_.last_of(time) : pace_.first_of(time));
    }
  transfer.reserve(pattern->schedule.messages.size());
  for (const Message& m : pattern->schedule.messages) {
    const auto& bytes = m.direction == Direction::kForward ? forward : backward;
    transfer.push_back(transfer_between(table_, target_, m.src_rank, m.dst_rank,
                                        bytes[m.src_stage * p + m.dst_stage],
                                        m.micro_batch == last ? pace_.last : pace_.first));
  }
  StepClock::Times times;
  pattern->clock.run(compute, transfer, times);
  return times.makespan;
}

}  // namespace stagecraft
