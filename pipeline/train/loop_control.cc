#include "pipeline/train/loop_control.h"

namespace stagecraft {
namespace {

Section section_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return Section::kForward;
    case ActionKind::kSend:
      return Section::kSend;
    case ActionKind::kReceive:
      return Section::kReceive;
    case ActionKind::kReduce:
    case ActionKind::kStep:
      return Section::kOptimizer;
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
    case ActionKind::kBackwardWeight:
      break;
  }
  return Section::kBackward;
}

}  // namespace

void LoopControl::follow(RankExecutor& executor) {
  executor.on_action = [this](const Action& action, int index) {
    enter(section_of(action.kind));
    page_.set_action(index, to_string(action), action.micro_batch);
  };
  executor.on_activity = [this](ActionKind kind) { enter(section_of(kind)); };
}

std::vector<std::string> LoopControl::gather(std::string_view what, std::string_view payload) {
  enter(Section::kVote);
  return control_.all_gather(what, payload);
}

}  // namespace stagecraft
