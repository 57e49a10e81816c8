// Quantities as people read them: "1,378.2", "3.42 GiB", "812.3 ms".
//
// Pure functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "partitioner/base/units.h"

namespace stagecraft {

// With a comma between thousands and `decimals` digits behind the point.
std::string grouped(double value, int decimals = 0);
std::string grouped(int64_t value);
std::string mib_text(Bytes bytes);                          // "1,378.2 MiB"
std::string counted(int64_t count, std::string_view what);  // "1 block", "3 batches"
std::string millis_text(Nanos time);  // "812.3 ms", "12.41 s" from ten seconds on

// The other way round: "20GiB", "1.5GiB", "20480MiB", or "20480" for MiB. Nothing when `text` is
// none of these, not above 0, or more than 2^30 MiB.
std::optional<Bytes> parse_size(std::string_view text);

}  // namespace stagecraft
