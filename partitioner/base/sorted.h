// Lists as sets.
//
// Pure function, any thread.
#pragma once

#include <algorithm>
#include <vector>

namespace stagecraft {

// Ascending, each value once.
template <typename Value>
void sort_and_unique(std::vector<Value>& values) {
  std::ranges::sort(values);
  const auto repeated = std::ranges::unique(values);
  values.erase(repeated.begin(), repeated.end());
}

}  // namespace stagecraft
