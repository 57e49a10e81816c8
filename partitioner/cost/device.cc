#include "partitioner/cost/device.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "partitioner/base/error.h"
#include "partitioner/base/strict_yaml.h"

namespace stagecraft {
namespace {

constexpr int64_t kMaxMib = int64_t{1} << 30;
constexpr int64_t kMaxDevices = 64;

Nanos from_micros(double micros) { return {static_cast<int64_t>(micros * 1e3)}; }

void read_mib(Fields& fields, const char* key, Bytes* out, NumberRange range,
              YamlPresence presence = kRequired) {
  double mib = out->mib();
  fields.number(key, &mib, range, presence);
  *out = Bytes::from_mib(mib);
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
  fields.integer("count", &group.count, {1, kMaxDevices}, kOptional);
  read_mib(fields, "memory_mib", &memory, {1, kMaxMib}, kOptional);
  fields.finish();
  if (file.empty()) return group;
  group.device = devices.read(document, file, fields.mark("device"));
  if (memory.count > 0) group.device.memory = memory;
  return group;
}

}  // namespace

Device read_device(const std::string& path) {
  YamlDocument document = YamlDocument::read(path);
  Device device;
  Fields fields(document, document.root());
  fields.string("name", &device.name);
  fields.string("kind", &device.kind, kRequired, {"cuda", "cpu"});
  read_mib(fields, "memory_mib", &device.memory, {1, kMaxMib});
  double fp32 = 0, fp16 = 0, gb_per_s = 0, latency_us = 0;
  constexpr NumberRange kRate{1e-6, 1e6};
  fields.number("tflops_fp32", &fp32, kRate);
  fields.number("tflops_fp16", &fp16, kRate);
  fields.number("bandwidth_gb_per_s", &gb_per_s, kRate);
  if (const YamlNode* node = fields.map("efficiency")) {
    constexpr NumberRange kPart{0.001, 1.0};
    Fields efficiency(document, *node, "efficiency");
    efficiency.number("matmul", &device.efficiency_matmul, kPart);
    efficiency.number("conv", &device.efficiency_conv, kPart);
    efficiency.number("attention", &device.efficiency_attention, kPart);
    efficiency.number("bandwidth", &device.efficiency_bandwidth, kPart);
    efficiency.finish();
  }
  fields.number("op_latency_us", &latency_us, {0, 1e6});
  read_mib(fields, "base_mib", &device.base, {0, kMaxMib});
  read_mib(fields, "comm_buffer_per_peer_mib", &device.comm_buffer_per_peer, {0, kMaxMib});
  fields.number("slack_fraction", &device.slack_fraction, {0, 1});
  fields.finish();
  if (device.base >= device.memory) {
    document.error(fields.mark("base_mib"), "base_mib leaves nothing of memory_mib");
  }
  document.throw_if_errors();
  device.flops_fp32 = fp32 * 1e12;
  device.flops_fp16 = fp16 * 1e12;
  device.bandwidth = gb_per_s * 1e9;
  device.op_latency = from_micros(latency_us);
  return device;
}

Cluster read_cluster(const std::string& path) {
  YamlDocument document = YamlDocument::read(path);
  Cluster cluster;
  Fields fields(document, document.root());
  fields.string("name", &cluster.name);
  if (const YamlNode* groups = fields.list("devices")) {
    DeviceFiles files(path);
    for (size_t i = 0; i < groups->items.size() && i < kMaxDevices; ++i) {
      const DeviceGroup group =
          read_group(document, groups->items[i], fmt::format("devices[{}]", i), files);
      cluster.devices.insert(cluster.devices.end(), static_cast<size_t>(group.count), group.device);
    }
    if (cluster.devices.empty() || cluster.devices.size() > kMaxDevices) {
      document.error(fields.mark("devices"),
                     fmt::format("devices gives {} ranks, allowed are 1 to {}",
                                 cluster.devices.size(), kMaxDevices));
    }
  }
  if (const YamlNode* node = fields.map("link")) {
    double gb_per_s = 0, latency_us = 0;
    Fields link(document, *node, "link");
    link.number("bandwidth_gb_per_s", &gb_per_s, {1e-6, 1e6});
    link.number("latency_us", &latency_us, {0, 1e9});
    link.finish();
    cluster.link = {.bandwidth = gb_per_s * 1e9, .latency = from_micros(latency_us)};
  }
  fields.finish();
  document.throw_if_errors();
  return cluster;
}

}  // namespace stagecraft
