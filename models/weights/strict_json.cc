#include "models/weights/strict_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace stagecraft {
namespace {

constexpr int kMaxDepth = 16;
constexpr size_t kMaxShown = 160;

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMaxShown)) {
    out += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return out;
}

nlohmann::json parse_strict_json(std::string_view text, const std::string& where, ExitCode code) {
  using Json = nlohmann::json;
  const auto fail = [&](const std::string& what) {
    throw InputError(code, fmt::format("{}: {}", where, what));
  };
  if (text.find('\0') != std::string_view::npos) fail("holds a NUL");
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (key.find('\0') != std::string::npos) fail("holds a key with a NUL");
      if (!keys.back().insert(key).second)
        fail(fmt::format("key '{}' occurs twice", printable(key)));
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception& error) {
    // The library's own number goes first.
    const std::string_view what = error.what();
    const size_t begin = what.find("] ");
    fail(printable(begin == std::string_view::npos ? what : what.substr(begin + 2)));
  }
  throw InternalError("unreachable");
}

}  // namespace stagecraft
