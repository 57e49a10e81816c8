// The fixed headers on connections: of messages, control frames and the first hello.
#include <cstring>

#include "pipeline/comm/describe.h"
#include "pipeline/comm/wire.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

template <size_t kSize>
std::array<std::byte, kSize> front(std::string_view input) {
  std::array<std::byte, kSize> bytes{};
  std::memcpy(bytes.data(), input.data(), std::min(kSize, input.size()));
  return bytes;
}

template <class Value>
Value take(std::string_view& input) {
  Value value{};
  std::memcpy(&value, input.data(), std::min(sizeof value, input.size()));
  input.remove_prefix(std::min(sizeof value, input.size()));
  return value;
}

bool same(const Header& a, const Header& b) {
  return a.kind == b.kind && a.tag == b.tag && a.bytes == b.bytes;
}

bool same(const FrameHeader& a, const FrameHeader& b) {
  return a.kind == b.kind && a.sequence == b.sequence && a.name_bytes == b.name_bytes &&
         a.payload_bytes == b.payload_bytes && a.checksum == b.checksum;
}

// Bytes as they come.
void decode_headers(std::string_view input) {
  if (const auto header = decode_header(front<kHeaderBytes>(input))) {
    require(same(*decode_header(encode_header(*header)), *header), "a header reads back");
  }
  if (const auto frame = decode_frame(front<kFrameHeaderBytes>(input))) {
    require(same(*decode_frame(encode_frame(*frame)), *frame), "a frame reads back");
  }
  Cookie cookie;
  cookie.fill(std::byte{0x5A});
  if (const auto hello = decode_hello(front<kHelloBytes>(input), cookie)) {
    const auto again = decode_hello(encode_hello(*hello), cookie);
    require(again && again->purpose == hello->purpose && again->rank == hello->rank &&
                again->size == hello->size,
            "a hello reads back");
  }
}

// Any field may hold any value behind a right checksum.
void encode_headers(std::string_view input) {
  const Header header{.kind = Kind::kMessage,
                      .tag = {.step = take<int64_t>(input), .message = take<int32_t>(input)},
                      .bytes = take<uint64_t>(input)};
  const auto read = decode_header(encode_header(header));
  require(read && same(*read, header), "a sealed header reads back");
  require(!describe_message(header.tag, static_cast<int64_t>(header.bytes)).empty(),
          "a message has a description");
}

void fuzz_message_header(std::string_view input) {
  decode_headers(input);
  encode_headers(input);
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(message_header)
}  // namespace stagecraft::fuzz
