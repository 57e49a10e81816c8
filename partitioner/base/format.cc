#include "partitioner/base/format.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

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

std::string counted(int64_t count, std::string_view what) {
  const char* plural = what.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : plural);
}

std::string mib_text(Bytes bytes) { return grouped(bytes.mib(), 1) + " MiB"; }

std::string millis_text(Nanos time) {
  return time.seconds() < 10 ? fmt::format("{:.1f} ms", time.millis())
                             : fmt::format("{:.2f} s", time.seconds());
}

std::optional<Bytes> parse_size(std::string_view text) {
  constexpr double kMostMib = 1 << 30;
  double mib_per_unit = 1;
  if (text.ends_with("MiB")) {
    text.remove_suffix(3);
  } else if (text.ends_with("GiB")) {
    text.remove_suffix(3);
    mib_per_unit = 1024;
  }
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const double mib = value * mib_per_unit;
  if (error != std::errc() || stop != end || !(mib > 0 && mib <= kMostMib)) return std::nullopt;
  const Bytes size = Bytes::from_mib(mib);
  return size.count > 0 ? std::optional(size) : std::nullopt;
}

}  // namespace stagecraft
