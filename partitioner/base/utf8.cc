#include "partitioner/base/utf8.h"

#include <cstdint>

namespace stagecraft {
namespace {

// Bytes of the sequence that starts with `lead`, 0 if none does, and the range of its second byte,
// which is what rules out long forms, surrogates and code points beyond U+10FFFF.
struct Sequence {
  size_t length = 0;
  uint8_t second_low = 0x80, second_high = 0xBF;
};

Sequence sequence_of(uint8_t lead) {
  if (lead < 0x80) return {1};
  if (lead < 0xC2) return {0};
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const Sequence sequence = sequence_of(static_cast<uint8_t>(text[0]));
  if (sequence.length > text.size()) return 0;
  for (size_t i = 1; i < sequence.length; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? sequence.second_low : 0x80;
    const uint8_t high = i == 1 ? sequence.second_high : 0xBF;
    if (byte < low || byte > high) return 0;
  }
  return sequence.length;
}

std::optional<size_t> first_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

}  // namespace stagecraft
