#include "file_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr const char* kClusters = "configs/clusters";

std::string shipped_clusters() {
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(kClusters, unreadable)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  if (names.empty()) return fmt::format("no {} here, give the path of a file", kClusters);
  std::ranges::sort(names);
  return fmt::format("there are {}", fmt::join(names, ", "));
}

}  // namespace

void check_output(const char* flag, const std::string& output, const Inputs& inputs,
                  const std::string& made_later) {
  const auto place = [](const std::string& path) {
    std::error_code unknown;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path), unknown);
  };
  for (const auto& [what, input] : inputs) {
    if (output.empty() || input.empty() || place(input) != place(output)) continue;
    throw Error(ExitCode::kUsage,
                fmt::format("{} {}: that is the {}; choose another file", flag, output, what));
  }
  if (output.empty()) return;
  if (!made_later.empty() && place(output).parent_path() == place(made_later)) return;
  const std::filesystem::path folder = std::filesystem::absolute(output).parent_path();
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown))
    throw InputError(ExitCode::kIo,
                     fmt::format("{} {}: there is no folder {}", flag, output, folder.string()));
  if (access(folder.c_str(), W_OK) != 0)
    throw InputError(ExitCode::kIo, fmt::format("{} {}: the folder {} may not be written to", flag,
                                                output, folder.string()));
}

std::string cluster_file(const std::string& name) {
  const std::filesystem::path shipped = std::filesystem::path(kClusters) / (name + ".yaml");
  if (std::filesystem::exists(name)) return name;
  if (std::filesystem::exists(shipped)) return shipped.string();
  throw InputError(ExitCode::kIo, fmt::format("--cluster {}: no such file, nor is there {}; {}",
                                              name, shipped.string(), shipped_clusters()));
}

Inputs cluster_inputs(const std::string& name) {
  if (name.empty()) return {};
  const std::string file = cluster_file(name);
  Inputs inputs{{"cluster file", file}};
  for (std::string& device : device_files(file))
    inputs.emplace_back("device file", std::move(device));
  return inputs;
}

Cluster load_cluster(const std::string& name) { return read_cluster(cluster_file(name)); }

std::string cluster_file_of(const Plan& plan) {
  // A name out of a file is no path.
  if (plan.cluster.empty() || plan.cluster.find('/') != std::string::npos) return {};
  const std::filesystem::path models = std::filesystem::path(plan.train.model).parent_path();
  for (const std::filesystem::path& folder :
       {std::filesystem::path(kClusters), models / "../clusters"}) {
    const std::filesystem::path file = folder / (plan.cluster + ".yaml");
    if (std::filesystem::exists(file)) return file.string();
  }
  return {};
}

}  // namespace stagecraft
