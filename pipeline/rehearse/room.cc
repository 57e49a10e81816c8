#include "pipeline/rehearse/room.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

// The first number of a file; nothing when there is none ("max").
std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The number behind `name` in a file of lines "name number ...".
std::optional<int64_t> number_of(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t number = 0;
    if (words >> word && word == name && words >> number) return number;
  }
  return std::nullopt;
}

struct GroupFiles {
  const char *limit, *usage, *cache;  // `cache` is a name in memory.stat
};

// The least that a group or one around it leaves: `folder` of `hierarchy` and those above it.
Bytes left_in_groups(const fs::path& hierarchy, const fs::path& folder, const GroupFiles& files) {
  Bytes least{INT64_MAX};
  for (fs::path group = folder.relative_path();; group = group.parent_path()) {
    const fs::path here = hierarchy / group;
    const auto limit = number_in(here / files.limit), usage = number_in(here / files.usage);
    if (limit && usage) {
      const int64_t cache = number_of(here / "memory.stat", files.cache).value_or(0);
      least = std::min(least, Bytes{std::max<int64_t>(0, *limit - (*usage - cache))});
    }
    if (group.empty()) return least;
  }
}

}  // namespace

Bytes available_memory(const std::string& root) {
  const auto free = number_of(root + "/proc/meminfo", "MemAvailable:");
  if (!free) throw InputError(ExitCode::kIo, "/proc/meminfo does not say what memory is available");
  Bytes least{*free * 1024};
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/a/b", "0::/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controller = line.substr(first + 1, second - first - 1);
    const fs::path folder = line.substr(second + 1);
    if (controller.empty()) {
      least = std::min(least, left_in_groups(root + "/sys/fs/cgroup", folder,
                                             {"memory.max", "memory.current", "inactive_file"}));
    } else if (controller == "memory") {
      least = std::min(least, left_in_groups(root + "/sys/fs/cgroup/memory", folder,
                                             {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                              "total_inactive_file"}));
    }
  }
  return least;
}

}  // namespace stagecraft
