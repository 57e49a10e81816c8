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
using ::testing::Not;

const std::string kConfigs = STAGECRAFT_SOURCE_DIR "/configs/";

std::string cpu_device() { return read_file(kConfigs + "devices/cpu.yaml", 1 << 20); }

Cluster cluster_of(const std::string& text) {
  TempFolder folder;
  folder.write("cpu.yaml", cpu_device());
  return read_cluster(folder.write("c.yaml", text));
}

std::string cluster_refusal(const std::string& cluster) {
  const auto error = caught([&] { cluster_of(cluster); });
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  return error.message;
}

TEST(Device, Rtx3090HasItsPublishedFigures) {
  const Device device = read_device(kConfigs + "devices/rtx3090.yaml");
  EXPECT_EQ(device.kind, "cuda");
  EXPECT_EQ(device.memory, Bytes::from_mib(24576 - 314));
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

std::string device_with(const std::string& from, const std::string& to) {
  std::string text = read_file(kConfigs + "devices/rtx3090.yaml", 1 << 20);
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Device, BaseIsTheSumOfItsTerms) {
  const Device device = read_device(kConfigs + "devices/rtx3090.yaml");
  EXPECT_EQ(device.base, Bytes::from_mib(256 + 224 + 16.25 + 24));
}

TEST(Device, BaseIsGivenOnceAndWhole) {
  TempFolder folder;
  const auto refusal = [&](const std::string& text) {
    return caught([&] { read_device(folder.write("d.yaml", text)); }).message;
  };
  EXPECT_THAT(refusal(device_with("slack_fraction", "base_mib: 1\nslack_fraction")),
              HasSubstr("give either base_mib or base, a map of its terms"));
  EXPECT_THAT(refusal(device_with("  kernels_mib: 224\n", "")),
              HasSubstr("key `base.kernels_mib` is missing"));
  EXPECT_THAT(refusal(device_with("reserved_mib: 314", "reserved_mib: 24100")),
              HasSubstr("leaves nothing of memory_mib"));
}

TEST(Device, EveryKeyIsDocumented) {
  TempFolder folder;
  const auto keys = known_keys(
      caught([&] {
        read_device(folder.write("d.yaml", "zzz: 1\nefficiency: {zzz: 1}\nbase: {zzz: 1}\n"));
      }).message);
  EXPECT_GE(keys.size(), 20u);
  const std::string readme = read_file(kConfigs + "devices/README.md", 1 << 20);
  for (const auto& key : keys) EXPECT_THAT(readme, HasSubstr("`" + key + "`"));
}

TEST(Cluster, EveryKeyIsDocumented) {
  const auto keys = known_keys(cluster_refusal(
      "zzz: 1\ndevices: [{zzz: 1}]\nlink: {zzz: 1}\nbetween_hosts: {}\nlinks: [{zzz: 1}]\n"));
  EXPECT_GE(keys.size(), 14u);
  const std::string readme = read_file(kConfigs + "clusters/README.md", 1 << 20);
  for (const auto& key : keys) EXPECT_THAT(readme, HasSubstr("`" + key + "`"));
}

TEST(Cluster, GroupsOfDevicesBecomeRanksWithTheirOwnMemory) {
  const Cluster cluster = cluster_of(
      "name: c\ndevices:\n  - {device: cpu.yaml, count: 2}\n"
      "  - {device: cpu.yaml, memory_mib: 100}\nlink: {bandwidth_gb_per_s: 2, latency_us: 5}\n");
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
      HasSubstr("c.yaml:2:1: devices gives 0 ranks, allowed are 1 to 4096"));
}

const std::string kFiveRanks =
    "name: c\ndevices: [{device: cpu.yaml, count: 5}]\n"
    "link: {bandwidth_gb_per_s: 10, latency_us: 1}\n";
const std::string kTwoHosts =
    kFiveRanks + "hosts: [3, 2]\nbetween_hosts: {bandwidth_gb_per_s: 1, latency_us: 9}\n";

TEST(Cluster, EveryPairHasItsLink) {
  const Cluster cluster =
      cluster_of(kTwoHosts +
                 "links:\n  - {ranks: [1, 0], bandwidth_gb_per_s: 50, latency_us: 2}\n"
                 "  - {ranks: [0, 4], bandwidth_gb_per_s: 3, latency_us: 0}\n");
  const Link near{.bandwidth = 10e9, .latency = {1000}}, far{.bandwidth = 1e9, .latency = {9000}};
  const Link bridge{.bandwidth = 50e9, .latency = {2000}}, cable{.bandwidth = 3e9, .latency = {}};
  for (int a = 0; a < 5; ++a) {
    for (int b = 0; b < 5; ++b) {
      const bool bridged = a + b == 1, cabled = a * b == 0 && a + b == 4;
      const Link& expected = bridged ? bridge : cabled ? cable : (a < 3) == (b < 3) ? near : far;
      if (a == b) continue;
      EXPECT_EQ(cluster.between(a, b), expected) << a << " to " << b;
    }
  }
}

TEST(Cluster, OneHostNeedsNoMoreThanItsLink) {
  const Cluster cluster = cluster_of(kFiveRanks + "hosts: [5]\n");
  EXPECT_EQ(cluster, cluster_of(kFiveRanks));
  EXPECT_EQ(cluster.between(0, 4), cluster.link);
}

TEST(Cluster, SelectedRanksKeepDeviceHostAndLinks) {
  Cluster cluster =
      cluster_of(kTwoHosts + "links: [{ranks: [1, 4], bandwidth_gb_per_s: 50, latency_us: 2}]\n");
  for (int r = 0; r < 5; ++r) cluster.devices[r].memory = {r};
  const std::vector<int> ranks = {4, 3, 1};
  const Cluster part = cluster.select(ranks);
  ASSERT_EQ(part.devices.size(), 3u);
  for (int a = 0; a < 3; ++a) {
    EXPECT_EQ(part.devices[a].memory.count, ranks[a]);
    for (int b = 0; b < 3; ++b) {
      if (a == b) continue;
      EXPECT_EQ(part.between(a, b), cluster.between(ranks[a], ranks[b]));
    }
  }
  EXPECT_THROW(cluster.select({0, 0}), InternalError);
  EXPECT_THROW(cluster.select({5}), InternalError);
}

TEST(Cluster, DevicesOfOneKindDifferInMemoryOnly) {
  Cluster cluster = cluster_of(kFiveRanks);
  cluster.devices[1].memory = {7};
  cluster.devices[2].flops_fp16 *= 2;
  cluster.devices[4] = cluster.devices[2];
  EXPECT_EQ(cluster.kinds(), (std::vector<int>{0, 0, 1, 0, 1}));
}

TEST(Cluster, HostsAndTheirLinkNeedEachOther) {
  EXPECT_THAT(cluster_refusal(kFiveRanks + "hosts: [3, 2]\n"),
              HasSubstr("c.yaml:4:1: hosts gives 2 hosts, and between_hosts is missing"));
  const std::string link = "between_hosts: {bandwidth_gb_per_s: 1, latency_us: 9}\n";
  EXPECT_THAT(cluster_refusal(kFiveRanks + link),
              HasSubstr("c.yaml:4:1: between_hosts is given, and hosts does not say"));
  EXPECT_THAT(cluster_refusal(kFiveRanks + "hosts: [3, 3]\n" + link),
              HasSubstr("c.yaml:4:1: hosts gives 6 ranks, devices 5"));
}

TEST(Cluster, LinksThatMakeNoSenseAreRefused) {
  const std::string figures = ", bandwidth_gb_per_s: 1, latency_us: 1}\n";
  const std::string message =
      cluster_refusal(kFiveRanks + "links:\n  - {ranks: [0, 5]" + figures + "  - {ranks: [1, 1]" +
                      figures + "  - {ranks: [1, 2, 3]" + figures + "  - {ranks: [2, 3]" + figures +
                      "  - {ranks: [3, 2]" + figures + "  - {ranks: [0, 1]}\n");
  EXPECT_THAT(message, HasSubstr("c.yaml:5:17: links[0].ranks[1] is out of range: `5`"));
  EXPECT_THAT(message, Not(HasSubstr("links[0].ranks must")));
  EXPECT_THAT(message, HasSubstr("c.yaml:6:6: links[1].ranks must be two different ranks"));
  EXPECT_THAT(message, HasSubstr("c.yaml:7:6: links[2].ranks must be two different ranks"));
  EXPECT_THAT(message, HasSubstr("c.yaml:9:6: links[4].ranks gives ranks 3 and 2 a second link"));
  EXPECT_THAT(message, HasSubstr("c.yaml:10:5: key `links[5].bandwidth_gb_per_s` is missing"));
}

TEST(Cluster, AsManyRanksAsAreAllowedAndNotOneMore) {
  const std::string link = "link: {bandwidth_gb_per_s: 1, latency_us: 1}\n";
  const std::string most = "name: c\ndevices: [{device: cpu.yaml, count: 4096}";
  EXPECT_EQ(cluster_of(most + "]\n" + link).devices.size(), 4096u);
  EXPECT_THAT(cluster_refusal(most + ", {device: cpu.yaml}]\n" + link),
              HasSubstr("devices gives 4097 ranks, allowed are 1 to 4096"));
}

}  // namespace
}  // namespace stagecraft
