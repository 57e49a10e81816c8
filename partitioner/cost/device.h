// Devices and clusters: what a rank runs on and what links it (`configs/devices/*.yaml`,
// `configs/clusters/*.yaml`).
//
// Plain values, any thread. Every figure in a shipped file names its public source.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

struct Device {
  std::string name;  // "rtx3090", "cpu"
  std::string kind;  // "cuda" or "cpu"
  Bytes memory;      // that can be allocated: what the driver keeps for itself is left out
  // Peak rates and the part of them that is reached (efficiency factors, 0..1], for the roofline.
  double flops_fp32 = 0, flops_fp16 = 0;  // FLOP/s of matrix work
  double bandwidth = 0;                   // bytes/s of device memory
  double efficiency_matmul = 1, efficiency_conv = 1, efficiency_attention = 1,
         efficiency_bandwidth = 1;
  AttentionKernel attention = AttentionKernel::kFlash;
  Nanos op_latency;  // launch overhead of one operation
  // What a process holds whatever it runs: resident size of an idle CPU rank, or the sum of the
  // terms that a CUDA device's file gives (docs/memory-model.md).
  Bytes base;
  Bytes comm_buffer_per_peer;  // per direction
  double slack_fraction = 0;   // of dynamic memory
  bool operator==(const Device&) const = default;
};

struct Link {
  double bandwidth = 0;  // bytes/s, each direction
  Nanos latency;
  bool operator==(const Link&) const = default;
};

inline constexpr int kMaxClusterRanks = 4096;

struct Cluster {
  std::string name;
  std::vector<Device> devices;    // one per rank
  Link link;                      // between two ranks of one host
  std::vector<int> host_of_rank;  // empty: all on one host
  Link between_hosts;             // between two ranks of different hosts
  // From one rank to another, where that differs from the two above.
  std::map<std::pair<int, int>, Link> exceptions;
  bool operator==(const Cluster&) const = default;

  // What a message from one rank to another goes through. Links are independent: two pairs that
  // share a cable each have all of it.
  const Link& between(int from_rank, int to_rank) const;
  // The part of the cluster in which rank i is rank `ranks[i]` of this, with the links between
  // them.
  Cluster select(const std::vector<int>& ranks) const;
  // By rank: the number of its kind of device, from 0 in the order of their first ranks. Devices
  // that differ in nothing but `memory` are of one kind.
  std::vector<int> kinds() const;
};

// Read strictly; a cluster names its device files relative to itself. Throws ConfigError with all
// faults.
Device read_device(const std::string& path);
Cluster read_cluster(const std::string& path);
// The paths of the device files that it names; throws likewise.
std::vector<std::string> device_files(const std::string& path);

}  // namespace stagecraft
