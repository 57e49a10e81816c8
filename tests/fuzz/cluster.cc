// A cluster file. It names device files beside it: cpu.yaml and rtx3090.yaml are there.
#include "partitioner/base/files.h"
#include "partitioner/cost/device.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void make_devices() {
  for (const char* name : {"cpu.yaml", "rtx3090.yaml"}) {
    const std::string source = std::string(STAGECRAFT_SOURCE_DIR) + "/configs/devices/" + name;
    folder().write(std::string("devices/") + name, read_file(source, 1 << 20));
  }
}

void fuzz_cluster(std::string_view input) {
  static const bool made = (make_devices(), true);
  static_cast<void>(made);
  try {
    const Cluster cluster = read_cluster(folder().write("clusters/cluster.yaml", input));
    require(!cluster.devices.empty() && cluster.devices.size() <= kMaxClusterRanks,
            "a cluster has 1 to 4096 ranks");
    const int ranks = static_cast<int>(cluster.devices.size());
    for (int r = 0; r < ranks; ++r) {
      require(cluster.between(r, (r + 1) % ranks).bandwidth > 0, "a link has a rate");
    }
    require(cluster.select({ranks - 1}).devices.size() == 1, "every rank can be taken out");
  } catch (const ConfigError& error) {
    accept(error, {ExitCode::kConfigInvalid});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(cluster)
}  // namespace stagecraft::fuzz
