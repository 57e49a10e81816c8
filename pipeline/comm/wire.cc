#include "pipeline/comm/wire.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace stagecraft {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kHelloMagic = 0x48434753;   // "SGCH"
constexpr uint32_t kHeaderMagic = 0x4D434753;  // "SGCM"
constexpr uint32_t kFrameMagic = 0x46434753;   // "SGCF"

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool equal_in_constant_time(const std::byte* a, const std::byte* b, size_t size) {
  std::byte difference{0};
  for (size_t i = 0; i < size; ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

// The last 8 bytes of a header are the checksum of those before.
void seal(std::span<std::byte> header) {
  put<uint64_t>(header.data() + header.size() - 8, XXH3_64bits(header.data(), header.size() - 8));
}

bool sealed(std::span<const std::byte> header, uint32_t magic) {
  return get<uint32_t>(header.data()) == magic &&
         get<uint16_t>(header.data() + 4) == kProtocolVersion &&
         get<uint64_t>(header.data() + header.size() - 8) ==
             XXH3_64bits(header.data(), header.size() - 8);
}

}  // namespace

HelloBytes encode_hello(const Hello& hello) {
  HelloBytes bytes{};
  put(bytes.data(), kHelloMagic);
  put(bytes.data() + 4, kProtocolVersion);
  put(bytes.data() + 6, hello.purpose);
  put(bytes.data() + 8, hello.rank);
  put(bytes.data() + 12, hello.size);
  std::ranges::copy(hello.cookie, bytes.begin() + 16);
  return bytes;
}

std::optional<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes,
                                  const Cookie& cookie) {
  const auto purpose = get<uint16_t>(bytes.data() + 6);
  const bool ours = equal_in_constant_time(bytes.data() + 16, cookie.data(), cookie.size());
  if (!ours || get<uint32_t>(bytes.data()) != kHelloMagic ||
      get<uint16_t>(bytes.data() + 4) != kProtocolVersion || purpose < 1 || purpose > 2) {
    return {};
  }
  return Hello{.purpose = static_cast<Purpose>(purpose),
               .rank = get<int32_t>(bytes.data() + 8),
               .size = get<int32_t>(bytes.data() + 12),
               .cookie = cookie};
}

HeaderBytes encode_header(const Header& header) {
  HeaderBytes bytes{};
  put(bytes.data(), kHeaderMagic);
  put(bytes.data() + 4, kProtocolVersion);
  put(bytes.data() + 6, header.kind);
  put(bytes.data() + 8, header.tag.step);
  put(bytes.data() + 16, header.tag.message);
  put(bytes.data() + 24, header.bytes);
  seal(bytes);
  return bytes;
}

std::optional<Header> decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  const auto kind = get<uint16_t>(bytes.data() + 6);
  if (!sealed(bytes, kHeaderMagic) || kind < 1 || kind > 2) return {};
  return Header{
      .kind = static_cast<Kind>(kind),
      .tag = {.step = get<int64_t>(bytes.data() + 8), .message = get<int32_t>(bytes.data() + 16)},
      .bytes = get<uint64_t>(bytes.data() + 24)};
}

TrailerBytes encode_trailer(uint64_t checksum) {
  TrailerBytes bytes;
  put(bytes.data(), checksum);
  return bytes;
}

uint64_t decode_trailer(std::span<const std::byte, kTrailerBytes> bytes) {
  return get<uint64_t>(bytes.data());
}

FrameHeaderBytes encode_frame(const FrameHeader& header) {
  FrameHeaderBytes bytes{};
  put(bytes.data(), kFrameMagic);
  put(bytes.data() + 4, kProtocolVersion);
  put(bytes.data() + 6, header.kind);
  put(bytes.data() + 8, header.sequence);
  put(bytes.data() + 16, header.name_bytes);
  put(bytes.data() + 24, header.payload_bytes);
  put(bytes.data() + 32, header.checksum);
  seal(bytes);
  return bytes;
}

std::optional<FrameHeader> decode_frame(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  const auto kind = get<uint16_t>(bytes.data() + 6);
  if (!sealed(bytes, kFrameMagic) || kind < 1 || kind > 3) return {};
  return FrameHeader{.kind = static_cast<FrameKind>(kind),
                     .sequence = get<uint64_t>(bytes.data() + 8),
                     .name_bytes = get<uint32_t>(bytes.data() + 16),
                     .payload_bytes = get<uint64_t>(bytes.data() + 24),
                     .checksum = get<uint64_t>(bytes.data() + 32)};
}

}  // namespace stagecraft
