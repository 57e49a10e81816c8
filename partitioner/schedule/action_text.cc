// Actions as text, for plan files, traces and messages.
#include <fmt/core.h>

#include <array>
#include <charconv>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/base/strict_json.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {
namespace {

constexpr std::array<std::pair<char, ActionKind>, 6> kLetters = {
    {{'F', ActionKind::kForward},
     {'I', ActionKind::kBackwardInput},
     {'W', ActionKind::kBackwardWeight},
     {'B', ActionKind::kBackward},
     {'S', ActionKind::kSend},
     {'R', ActionKind::kReceive}}};

constexpr size_t kShown = 40;  // bytes of a text that is no action

// Reads digits from the front of `text`; false when there are none or too many.
bool take_number(std::string_view& text, int& number) {
  const char* end = text.data() + text.size();
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return true;
}

}  // namespace

std::string to_string(const Action& action) {
  if (action.kind == ActionKind::kStep) return "step";
  if (action.kind == ActionKind::kReduce) return "reduce";
  for (auto [letter, kind] : kLetters) {
    if (kind != action.kind) continue;
    if (kind == ActionKind::kSend || kind == ActionKind::kReceive) {
      return fmt::format("{}{}", letter, action.message);
    }
    return fmt::format("{}{}.{}", letter, action.stage, action.micro_batch);
  }
  throw InternalError("unknown action kind");
}

Action parse_action(std::string_view text) {
  if (text == "step") return {.kind = ActionKind::kStep};
  if (text == "reduce") return {.kind = ActionKind::kReduce};
  for (auto [letter, kind] : kLetters) {
    if (text.empty() || text.front() != letter) continue;
    std::string_view rest = text.substr(1);
    Action action{.kind = kind};
    if (kind == ActionKind::kSend || kind == ActionKind::kReceive) {
      if (take_number(rest, action.message) && rest.empty()) return action;
    } else if (take_number(rest, action.stage) && !rest.empty() && rest.front() == '.') {
      rest.remove_prefix(1);
      if (take_number(rest, action.micro_batch) && rest.empty()) return action;
    }
    break;
  }
  throw ConfigError(
      fmt::format("\"{}\" is no action; allowed are F, I, W, B with stage and micro-batch as in "
                  "F0.2, S and R with a message number as in S7, reduce, step",
                  printable(text, kShown)));
}

}  // namespace stagecraft
