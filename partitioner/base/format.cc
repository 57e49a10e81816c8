#include "partitioner/base/format.h"

#include <fmt/format.h>

namespace stagecraft {

std::string grouped(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  const size_t digits_start = text.starts_with('-') ? 1 : 0;
  size_t at = std::min(text.find('.'), text.size());
  while (at > digits_start + 3) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string grouped(int64_t value) { return grouped(static_cast<double>(value), 0); }

std::string mib_text(Bytes bytes) { return grouped(bytes.mib(), 1) + " MiB"; }

std::string millis_text(Nanos time) {
  return time.seconds() < 10 ? fmt::format("{:.1f} ms", time.millis())
                             : fmt::format("{:.2f} s", time.seconds());
}

}  // namespace stagecraft
