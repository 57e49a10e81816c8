// What the bytes on a connection mean. Little-endian, fixed offsets; docs/communication.md shows
// the tables.
//
// A message is a header, its payload, and a trailer with the XXH3-64 of the payload, so that both
// ends compute the checksum while the bytes pass and never walk over a large tensor twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "pipeline/comm/communicator.h"

namespace stagecraft {

inline constexpr uint16_t kProtocolVersion = 1;
using Cookie = std::array<std::byte, 16>;  // secret of one run

// First on a connection, in both directions.
enum class Purpose : uint16_t { kData = 1, kControl = 2 };
struct Hello {
  Purpose purpose = Purpose::kData;
  int32_t rank = 0;  // who speaks
  int32_t size = 0;
  Cookie cookie{};
};
inline constexpr size_t kHelloBytes = 32;
using HelloBytes = std::array<std::byte, kHelloBytes>;
HelloBytes encode_hello(const Hello& hello);
// Empty unless it is a hello of this protocol with that cookie (compared in constant time).
std::optional<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes,
                                  const Cookie& cookie);

// In front of each message on a data connection.
enum class Kind : uint16_t { kMessage = 1, kGoodbye = 2 };
struct Header {
  Kind kind = Kind::kMessage;
  MessageTag tag;
  uint64_t bytes = 0;  // of payload
};
inline constexpr size_t kHeaderBytes = 40;
inline constexpr size_t kTrailerBytes = 8;
using HeaderBytes = std::array<std::byte, kHeaderBytes>;
using TrailerBytes = std::array<std::byte, kTrailerBytes>;
HeaderBytes encode_header(const Header& header);
// Empty if it is not a header of this protocol or its own checksum is wrong.
std::optional<Header> decode_header(std::span<const std::byte, kHeaderBytes> bytes);
TrailerBytes encode_trailer(uint64_t checksum);
uint64_t decode_trailer(std::span<const std::byte, kTrailerBytes> bytes);

// A frame on a control connection: this header, the collective's name, the payload.
enum class FrameKind : uint16_t { kRequest = 1, kReply = 2, kRefusal = 3 };
struct FrameHeader {
  FrameKind kind = FrameKind::kRequest;
  uint64_t sequence = 0;  // of the collective
  uint32_t name_bytes = 0;
  uint64_t payload_bytes = 0;
  uint64_t checksum = 0;  // XXH3-64 of name and payload
};
inline constexpr size_t kFrameHeaderBytes = 48;
using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;
FrameHeaderBytes encode_frame(const FrameHeader& header);
std::optional<FrameHeader> decode_frame(std::span<const std::byte, kFrameHeaderBytes> bytes);

}  // namespace stagecraft
