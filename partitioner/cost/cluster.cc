#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/base/strict_yaml.h"
#include "partitioner/cost/device.h"
#include "partitioner/cost/device_fields.h"

namespace stagecraft {
namespace {

void read_link_figures(Fields& fields, Link* link) {
  double gb_per_s = 0, latency_us = 0;
  fields.number("bandwidth_gb_per_s", &gb_per_s, {1e-6, 1e6});
  fields.number("latency_us", &latency_us, {0, 1e9});
  *link = {.bandwidth = gb_per_s * 1e9, .latency = from_micros(latency_us)};
}

void read_link(YamlDocument& document, const YamlNode& node, const char* where, Link* link) {
  Fields fields(document, node, where);
  read_link_figures(fields, link);
  fields.finish();
}

struct DeviceGroup {
  int64_t count = 1;
  Device device;
};

// Device files by path: each is read once, however often a cluster names it.
class DeviceFiles {
 public:
  explicit DeviceFiles(const std::string& cluster)
      : folder_(std::filesystem::path(cluster).parent_path()) {}

  // An error at `mark` the first time that a file cannot be read.
  Device read(YamlDocument& document, const std::string& file, YamlMark mark) {
    const std::string path = (folder_ / file).lexically_normal().string();
    const auto [entry, is_new] = devices_.try_emplace(path);
    if (!is_new) return entry->second;
    try {
      entry->second = read_device(path);
    } catch (const Error& error) {
      document.error(mark, error.what());
    }
    return entry->second;
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    for (const auto& [path, device] : devices_) paths.push_back(path);
    return paths;
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, Device> devices_;
};

DeviceGroup read_group(YamlDocument& document, const YamlNode& node, const std::string& where,
                       DeviceFiles& devices) {
  DeviceGroup group;
  std::string file;
  Bytes memory;
  Fields fields(document, node, where);
  fields.string("device", &file);
  fields.integer("count", &group.count, {1, kMaxClusterRanks}, kOptional);
  read_mib(fields, "memory_mib", &memory, {1, kMaxMib}, kOptional);
  fields.finish();
  if (file.empty()) return group;
  group.device = devices.read(document, file, fields.mark("device"));
  if (memory.count > 0) group.device.memory = memory;
  return group;
}

void read_devices(YamlDocument& document, Fields& fields, DeviceFiles& files, Cluster& cluster) {
  const YamlNode* groups = fields.list("devices");
  if (groups == nullptr) return;
  int64_t ranks = 0;
  for (size_t i = 0; i < groups->items.size() && i < kMaxClusterRanks; ++i) {
    const DeviceGroup group =
        read_group(document, groups->items[i], fmt::format("devices[{}]", i), files);
    ranks += group.count;
    if (ranks > kMaxClusterRanks) continue;
    cluster.devices.insert(cluster.devices.end(), static_cast<size_t>(group.count), group.device);
  }
  if (ranks < 1 || ranks > kMaxClusterRanks) {
    document.error(
        fields.mark("devices"),
        fmt::format("devices gives {} ranks, allowed are 1 to {}", ranks, kMaxClusterRanks));
  }
}

// `hosts` and `between_hosts`: one needs the other.
void read_hosts(YamlDocument& document, Fields& fields, Cluster& cluster) {
  if (const YamlNode* node = fields.map("between_hosts", kOptional)) {
    read_link(document, *node, "between_hosts", &cluster.between_hosts);
  }
  std::vector<int64_t> hosts;
  fields.integers("hosts", &hosts, {1, kMaxClusterRanks}, kOptional);
  if (hosts.size() > 1 && !fields.has("between_hosts")) {
    document.error(fields.mark("hosts"),
                   fmt::format("hosts gives {} hosts, and between_hosts is missing", hosts.size()));
  }
  if (hosts.size() <= 1 && fields.has("between_hosts")) {
    document.error(fields.mark("between_hosts"),
                   "between_hosts is given, and hosts does not say which ranks share a host");
  }
  // A count that is none has its error already, and is 0.
  if (hosts.empty() || cluster.devices.empty() || std::ranges::find(hosts, 0) != hosts.end()) {
    return;
  }
  int64_t ranks = 0;
  for (const int64_t count : hosts) ranks += count;
  if (ranks != static_cast<int64_t>(cluster.devices.size())) {
    document.error(fields.mark("hosts"),
                   fmt::format("hosts gives {} ranks, devices {}", ranks, cluster.devices.size()));
    return;
  }
  if (hosts.size() == 1) return;
  for (size_t h = 0; h < hosts.size(); ++h) {
    cluster.host_of_rank.insert(cluster.host_of_rank.end(), static_cast<size_t>(hosts[h]),
                                static_cast<int>(h));
  }
}

// Each entry holds for both directions of one pair of ranks.
void read_exceptions(YamlDocument& document, Fields& fields, Cluster& cluster) {
  const YamlNode* links = fields.list("links", kOptional);
  if (links == nullptr) return;
  const int64_t ranks =
      cluster.devices.empty() ? kMaxClusterRanks : static_cast<int64_t>(cluster.devices.size());
  for (size_t i = 0; i < links->items.size(); ++i) {
    Link link;
    std::vector<int64_t> pair;
    Fields entry(document, links->items[i], fmt::format("links[{}]", i));
    entry.integers("ranks", &pair, {0, ranks - 1});
    read_link_figures(entry, &link);
    entry.finish();
    const YamlNode* given = links->items[i].find("ranks");
    if (given == nullptr || given->kind != YamlNode::Kind::kList) continue;
    const auto refuse = [&](const std::string& why) {
      document.error(entry.mark("ranks"), fmt::format("{} {}", entry.name("ranks"), why));
    };
    // A member that is no rank has its error already, and is 0 in `pair`.
    if (pair.size() != 2 || given->items[0].text == given->items[1].text) {
      refuse("must be two different ranks");
      continue;
    }
    if (pair[0] == pair[1]) continue;
    const int a = static_cast<int>(pair[0]), b = static_cast<int>(pair[1]);
    if (!cluster.exceptions.try_emplace({a, b}, link).second) {
      refuse(fmt::format("gives ranks {} and {} a second link", a, b));
    }
    cluster.exceptions.try_emplace({b, a}, link);
  }
}

}  // namespace

const Link& Cluster::between(int from_rank, int to_rank) const {
  if (const auto found = exceptions.find({from_rank, to_rank}); found != exceptions.end()) {
    return found->second;
  }
  if (host_of_rank.empty()) return link;
  const auto host = [this](int rank) {
    check(rank >= 0 && static_cast<size_t>(rank) < host_of_rank.size(),
          "a rank has no host in its cluster");
    return host_of_rank[static_cast<size_t>(rank)];
  };
  return host(from_rank) == host(to_rank) ? link : between_hosts;
}

Cluster Cluster::select(const std::vector<int>& ranks) const {
  Cluster part{.name = name,
               .devices = {},
               .link = link,
               .host_of_rank = {},
               .between_hosts = between_hosts,
               .exceptions = {}};
  std::map<int, int> place;  // in `part`, by rank of this
  for (const int rank : ranks) {
    check(rank >= 0 && static_cast<size_t>(rank) < devices.size() &&
              place.try_emplace(rank, static_cast<int>(place.size())).second,
          "a part of a cluster names a rank that is not there, or twice");
    part.devices.push_back(devices[static_cast<size_t>(rank)]);
    if (!host_of_rank.empty()) part.host_of_rank.push_back(host_of_rank[static_cast<size_t>(rank)]);
  }
  for (const auto& [pair, exception] : exceptions) {
    const auto from = place.find(pair.first), to = place.find(pair.second);
    if (from == place.end() || to == place.end()) continue;
    part.exceptions.emplace(std::pair(from->second, to->second), exception);
  }
  return part;
}

std::vector<int> Cluster::kinds() const {
  std::vector<int> kinds;
  std::vector<Device> known;
  for (Device device : devices) {
    device.memory = {};
    const auto found = std::ranges::find(known, device);
    kinds.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(std::move(device));
  }
  return kinds;
}

Cluster read_cluster(const std::string& path) {
  YamlDocument document = YamlDocument::read(path);
  Cluster cluster;
  Fields fields(document, document.root());
  fields.string("name", &cluster.name);
  DeviceFiles files(path);
  read_devices(document, fields, files, cluster);
  if (const YamlNode* node = fields.map("link")) {
    read_link(document, *node, "link", &cluster.link);
  }
  read_hosts(document, fields, cluster);
  read_exceptions(document, fields, cluster);
  fields.finish();
  document.throw_if_errors();
  return cluster;
}

std::vector<std::string> device_files(const std::string& path) {
  YamlDocument document = YamlDocument::read(path);
  Fields fields(document, document.root());
  DeviceFiles files(path);
  Cluster cluster;
  read_devices(document, fields, files, cluster);
  document.throw_if_errors();
  return files.paths();
}

}  // namespace stagecraft
