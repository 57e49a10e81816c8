#include "partitioner/schedule/replay.h"

#include <algorithm>

namespace stagecraft {
namespace {

bool computes(const Action& action, Direction direction, int stage, int micro_batch) {
  if (action.stage != stage || action.micro_batch != micro_batch) return false;
  if (direction == Direction::kForward) return action.kind == ActionKind::kForward;
  return action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput;
}

}  // namespace

InFlightPeak replay_in_flight(const Flow& flow, const Schedule& schedule, int rank,
                              const std::vector<Bytes>& saved_bytes_of_stage,
                              const std::vector<int64_t>& micro_batch_sizes) {
  const std::vector<Action>& actions = schedule.ranks[rank];
  std::vector<Bytes> change(
      actions.size() + 1);  // at the start of an action; the end of one is the start of the next
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    const bool ends = a.kind == ActionKind::kBackward || a.kind == ActionKind::kBackwardWeight;
    if ((a.kind == ActionKind::kForward || ends) && flow.has_backward[a.stage] &&
        a.stage < static_cast<int>(saved_bytes_of_stage.size())) {
      const Bytes saved = saved_bytes_of_stage[a.stage] * micro_batch_sizes[a.micro_batch];
      ends ? change[i + 1] -= saved : change[i] += saved;
    }
    if (a.message < 0) continue;
    const Message& message = schedule.messages[a.message];
    if (a.kind == ActionKind::kSend) {
      for (size_t k = 0; k < i; ++k) {
        if (!computes(actions[k], message.direction, message.src_stage, message.micro_batch))
          continue;
        change[k] += message.bytes;
        change[i + 1] -= message.bytes;
        break;
      }
    } else if (a.kind == ActionKind::kReceive) {
      size_t last = i;
      for (const Hop& hop :
           message.direction == Direction::kForward ? flow.forward : flow.backward) {
        if (hop.from_stage != message.src_stage) continue;
        for (size_t k = i; k < actions.size(); ++k) {
          if (computes(actions[k], message.direction, hop.to_stage, message.micro_batch)) {
            last = std::max(last, k);
          }
        }
      }
      change[i] += message.bytes;
      change[last + 1] -= message.bytes;
    }
  }
  InFlightPeak peak;
  Bytes live;
  for (size_t i = 0; i < actions.size(); ++i) {
    live += change[i];
    if (live > peak.bytes) peak = {.bytes = live, .index = i};
  }
  return peak;
}

}  // namespace stagecraft
