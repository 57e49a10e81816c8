// Action lists from and to text.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "partitioner/schedule/schedule.h"

namespace stagecraft::testing {

inline std::string text_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ' ';
    text += to_string(action);
  }
  return text;
}

inline std::vector<Action> actions_of(const std::string& text) {
  std::istringstream words(text);
  std::vector<Action> actions;
  for (std::string word; words >> word;) actions.push_back(parse_action(word));
  return actions;
}

// Two ranks: the first sends six micro-batches one after the other, the second has posted them all.
inline std::vector<std::vector<Action>> six_sends_ahead() {
  return {actions_of("F0.0 S0 F0.1 S1 F0.2 S2 F0.3 S3 F0.4 S4 F0.5 S5 step"),
          actions_of("R0 R1 R2 R3 R4 R5 F1.0 F1.1 F1.2 F1.3 F1.4 F1.5 B1.0 B1.1 B1.2 B1.3 B1.4 "
                     "B1.5 step")};
}

}  // namespace stagecraft::testing
