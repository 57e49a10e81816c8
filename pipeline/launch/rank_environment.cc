#include "pipeline/launch/rank_environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace stagecraft {
namespace {

std::string take_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) {
    throw CommError(ExitCode::kStartup, -1,
                    fmt::format("{} is set but {} is not: start ranks through the launcher",
                                kRankVariable, name));
  }
  std::string text = value;
  ::unsetenv(name);
  return text;
}

int take_number(const char* name, int low, int high) {
  const std::string text = take_variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw CommError(ExitCode::kStartup, -1,
                    fmt::format("{}={} is not a number from {} to {}", name, text, low, high));
  }
  return value;
}

}  // namespace

SocketWorldOptions RankEnvironment::socket_options() const {
  SocketWorldOptions options;
  options.folder = folder;
  options.rank = rank;
  options.size = size;
  options.cookie = cookie;
  return options;
}

std::optional<RankEnvironment> rank_environment() {
  if (std::getenv(kRankVariable) == nullptr) return {};
  constexpr int kMaxRanks = 4096;
  RankEnvironment result;
  result.size = take_number(kSizeVariable, 1, kMaxRanks);
  result.rank = take_number(kRankVariable, 0, result.size - 1);
  result.folder = take_variable(kFolderVariable);
  const Descriptor memory(take_number(kProgressVariable, 3, 1'000'000));
  result.page = ProgressPage(memory.get());
  result.cookie = result.page.cookie();
  return result;
}

}  // namespace stagecraft
