#include "partitioner/cost/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/base/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/known_keys.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

const std::string kConfigs = STAGECRAFT_SOURCE_DIR "/configs/";

std::string cpu_device() { return read_file(kConfigs + "devices/cpu.yaml", 1 << 20); }

std::string cluster_refusal(const std::string& cluster) {
  TempFolder folder;
  folder.write("cpu.yaml", cpu_device());
  const auto error = caught([&] { read_cluster(folder.write("c.yaml", cluster)); });
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  return error.message;
}

TEST(Device, Rtx3090HasItsPublishedFigures) {
  const Device device = read_device(kConfigs + "devices/rtx3090.yaml");
  EXPECT_EQ(device.kind, "cuda");
  EXPECT_EQ(device.memory, Bytes::from_mib(24576));
  EXPECT_DOUBLE_EQ(device.flops_fp32, 35.6e12);
  EXPECT_DOUBLE_EQ(device.flops_fp16, 71e12);
  EXPECT_DOUBLE_EQ(device.bandwidth, 936e9);
  EXPECT_EQ(device.op_latency, Nanos{8000});
}

TEST(Device, EveryShippedDeviceAndClusterReads) {
  for (const char* folder : {"devices", "clusters"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kConfigs + folder)) {
      if (entry.path().extension() != ".yaml") continue;
      const std::string name = std::string(folder) == "devices"
                                   ? read_device(entry.path().string()).name
                                   : read_cluster(entry.path().string()).name;
      EXPECT_EQ(name, entry.path().stem().string());
    }
  }
}

TEST(Device, EveryKeyIsDocumented) {
  TempFolder folder;
  const auto keys =
      known_keys(caught([&] {
                   read_device(folder.write("d.yaml", "zzz: 1\nefficiency: {zzz: 1}\n"));
                 }).message);
  EXPECT_GE(keys.size(), 14u);
  const std::string readme = read_file(kConfigs + "devices/README.md", 1 << 20);
  for (const auto& key : keys) EXPECT_THAT(readme, HasSubstr("`" + key + "`"));
}

TEST(Cluster, EveryKeyIsDocumented) {
  const auto keys = known_keys(cluster_refusal("zzz: 1\ndevices: [{zzz: 1}]\nlink: {zzz: 1}\n"));
  EXPECT_GE(keys.size(), 8u);
  const std::string readme = read_file(kConfigs + "clusters/README.md", 1 << 20);
  for (const auto& key : keys) EXPECT_THAT(readme, HasSubstr("`" + key + "`"));
}

TEST(Cluster, GroupsOfDevicesBecomeRanksWithTheirOwnMemory) {
  TempFolder folder;
  folder.write("cpu.yaml", cpu_device());
  const Cluster cluster =
      read_cluster(folder.write("c.yaml",
                                "name: c\ndevices:\n  - {device: cpu.yaml, count: 2}\n  - {device: "
                                "cpu.yaml, memory_mib: 100}\n"
                                "link: {bandwidth_gb_per_s: 2, latency_us: 5}\n"));
  ASSERT_EQ(cluster.devices.size(), 3u);
  EXPECT_EQ(cluster.devices[1].memory, Bytes::from_mib(4096));
  EXPECT_EQ(cluster.devices[2].memory, Bytes::from_mib(100));
  EXPECT_EQ(cluster.link, (Link{.bandwidth = 2e9, .latency = {5000}}));
}

TEST(Cluster, FaultsOfAllPartsAreFoundAtOnce) {
  const std::string message = cluster_refusal(
      "name: c\ndevices:\n  - {device: gone.yaml}\n  - {device: cpu.yaml, count: 0}\n"
      "link: {bandwidth_gb_per_s: 0, latency_us: 5}\n");
  EXPECT_THAT(message, HasSubstr("c.yaml:3:6: cannot open"));
  EXPECT_THAT(message, HasSubstr("c.yaml:4:31: devices[1].count is out of range: `0`"));
  EXPECT_THAT(message, HasSubstr("c.yaml:5:28: link.bandwidth_gb_per_s is out of range"));
}

TEST(Cluster, WithoutDevicesIsRefused) {
  EXPECT_THAT(
      cluster_refusal("name: c\ndevices: []\nlink: {bandwidth_gb_per_s: 1, latency_us: 5}\n"),
      HasSubstr("c.yaml:2:1: devices gives 0 ranks, allowed are 1 to 64"));
}

}  // namespace
}  // namespace stagecraft
