// UTF-8 as RFC 3629 has it: shortest forms only, no surrogates, nothing beyond U+10FFFF. For text
// that comes from strangers. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace stagecraft {

// Bytes of the character that `text` starts with, 0 when it starts with none.
size_t utf8_length(std::string_view text);

// Where the first byte stands that starts no character.
std::optional<size_t> first_invalid_utf8(std::string_view text);

}  // namespace stagecraft
