// The keys a strict reader knows, taken from what it says about a key it does not know.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace stagecraft {

// All lists "(known here: a, b)" of the message, flat.
inline std::vector<std::string> known_keys(const std::string& message) {
  std::vector<std::string> keys;
  const std::string marker = "(known here: ";
  for (size_t at = message.find(marker); at != std::string::npos; at = message.find(marker, at)) {
    at += marker.size();
    std::istringstream list(message.substr(at, message.find(')', at) - at));
    for (std::string key; std::getline(list >> std::ws, key, ',');) keys.push_back(key);
  }
  return keys;
}

}  // namespace stagecraft
