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

}  // namespace stagecraft::testing
