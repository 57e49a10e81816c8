// The JSON header of a safetensors file, parsed and written as text. Takes bytes only, so that it
// can be fuzzed.
//
// Pure functions and plain values; any thread. Internal to models/weights.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/weights/safetensors.h"

namespace stagecraft {

inline constexpr int64_t kMaxSafetensorsHeader = int64_t{2} << 20;  // bytes; SDXL's has 0.3 MiB

struct SafetensorsHeader {
  struct Entry {
    std::string dtype;          // as written
    std::optional<DType> held;  // the same, when we hold it
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0;  // bytes behind the header
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;
};

// `text` is the header without its length; `data_bytes` what follows it in the file. `where` starts
// messages. Throws InputError(kNoCheckpoint).
SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                           const std::string& where);

// Length and header, padded with spaces to a multiple of 8; tensors ordered by falling size of
// their elements, then name, so that each one is aligned. `offsets` receives each tensor's first
// byte in the file. Throws InternalError for names that occur twice or that the parser refuses.
std::string make_safetensors_header(const std::vector<TensorInfo>& tensors,
                                    const std::map<std::string, std::string>& metadata,
                                    std::map<std::string, int64_t>& offsets);

}  // namespace stagecraft
