// Checks text that comes from strangers. Pure function, any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace stagecraft {

// Offset of the first byte that does not continue valid UTF-8 (RFC 3629: shortest form, no
// surrogates).
std::optional<size_t> first_invalid_utf8(std::string_view text);

}  // namespace stagecraft
