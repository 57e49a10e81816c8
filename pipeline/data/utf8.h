// Two helpers for text that comes from strangers. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace stagecraft {

// Offset of the first byte that does not continue valid UTF-8 (RFC 3629: shortest form, no
// surrogates).
std::optional<size_t> first_invalid_utf8(std::string_view text);

// For messages: control characters as \xNN, cut after 200 bytes, so that a file name stays on its
// line.
std::string printable(std::string_view text);

}  // namespace stagecraft
