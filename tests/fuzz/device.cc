// A device file.
#include "partitioner/cost/device.h"

#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_device(std::string_view input) {
  try {
    const Device device = read_device(folder().write("device.yaml", input));
    require(device.memory > device.base, "a device has memory beside its base");
    require(device.flops_fp32 > 0 && device.flops_fp16 > 0 && device.bandwidth > 0,
            "a device has rates");
  } catch (const ConfigError& error) {
    accept(error, {ExitCode::kConfigInvalid});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(device)
}  // namespace stagecraft::fuzz
