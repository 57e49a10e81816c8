// Devices and clusters: what a rank runs on and what links it (`configs/devices/*.yaml`,
// `configs/clusters/*.yaml`).
//
// Plain values, any thread. Every figure in a shipped file names its public source.
#pragma once

#include <string>
#include <vector>

#include "partitioner/base/units.h"

namespace stagecraft {

struct Device {
  std::string name;  // "rtx3090", "cpu"
  std::string kind;  // "cuda" or "cpu"
  Bytes memory;
  // Peak rates and the part of them that is reached (efficiency factors, 0..1], for the roofline.
  double flops_fp32 = 0, flops_fp16 = 0;  // FLOP/s of matrix work
  double bandwidth = 0;                   // bytes/s of device memory
  double efficiency_matmul = 1, efficiency_conv = 1, efficiency_attention = 1,
         efficiency_bandwidth = 1;
  Nanos op_latency;            // launch overhead of one operation
  Bytes base;                  // idle process: CUDA context, or resident size of a CPU rank
  Bytes comm_buffer_per_peer;  // per direction
  double slack_fraction = 0;   // of dynamic memory
  bool operator==(const Device&) const = default;
};

struct Link {
  double bandwidth = 0;  // bytes/s, each direction
  Nanos latency;
  bool operator==(const Link&) const = default;
};

struct Cluster {
  std::string name;
  std::vector<Device> devices;  // one per rank
  Link link;  // between any two ranks (per-pair links come with the planner's next step)
  bool operator==(const Cluster&) const = default;
};

// Read strictly; a cluster names its device files relative to itself. Throws ConfigError with all
// faults.
Device read_device(const std::string& path);
Cluster read_cluster(const std::string& path);

}  // namespace stagecraft
