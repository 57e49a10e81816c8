// A CPU of round figures, for costs whose times do not matter.
#pragma once

#include "partitioner/cost/device.h"

namespace stagecraft::testing {

inline Device plain_cpu() {
  Device device;
  device.name = device.kind = "cpu";
  device.flops_fp32 = 1e11;
  device.bandwidth = 1e10;
  return device;
}

}  // namespace stagecraft::testing
