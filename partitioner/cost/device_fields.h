// Quantities that device and cluster files share; used by their readers only.
#pragma once

#include <cstdint>

#include "partitioner/base/strict_yaml.h"
#include "partitioner/base/units.h"

namespace stagecraft {

inline constexpr int64_t kMaxMib = int64_t{1} << 30;

inline Nanos from_micros(double micros) { return {static_cast<int64_t>(micros * 1e3)}; }

inline void read_mib(Fields& fields, const char* key, Bytes* out, NumberRange range,
                     YamlPresence presence = kRequired) {
  double mib = out->mib();
  fields.number(key, &mib, range, presence);
  *out = Bytes::from_mib(mib);
}

}  // namespace stagecraft
