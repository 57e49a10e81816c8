#include "pipeline/comm/wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "partitioner/base/descriptor.h"
#include "pipeline/comm/socket_transfer.h"
#include "tests/comm/world_helpers.h"

namespace stagecraft {
namespace {

const Header kHeader{.tag = {.step = 1'000'000'000'000, .message = 77}, .bytes = 5'000'000'000};

TEST(Wire, AHeaderIsReadBack) {
  const auto header = decode_header(encode_header(kHeader));
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->kind, Kind::kMessage);
  EXPECT_EQ(header->tag, kHeader.tag);
  EXPECT_EQ(header->bytes, kHeader.bytes);
}

TEST(Wire, AHeaderWithAnyBitChangedIsRefused) {
  for (size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    HeaderBytes bytes = encode_header(kHeader);
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(decode_header(bytes).has_value()) << bit;
  }
}

TEST(Wire, AFrameHeaderWithAnyBitChangedIsRefused) {
  const FrameHeader frame{.sequence = 3, .name_bytes = 4, .payload_bytes = 5, .checksum = 6};
  ASSERT_TRUE(decode_frame(encode_frame(frame)).has_value());
  for (size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    FrameHeaderBytes bytes = encode_frame(frame);
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(decode_frame(bytes).has_value()) << bit;
  }
}

TEST(Wire, AHelloNeedsEachBitOfTheCookie) {
  Cookie cookie;
  cookie.fill(std::byte{0x33});
  const HelloBytes bytes = encode_hello({.rank = 2, .size = 4, .cookie = cookie});
  ASSERT_TRUE(decode_hello(bytes, cookie).has_value());
  for (size_t bit = 0; bit < 8 * cookie.size(); ++bit) {
    Cookie other = cookie;
    other[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(decode_hello(bytes, other).has_value()) << bit;
  }
}

// What a transfer of `payload` puts on the wire behind its header.
std::vector<std::byte> bytes_on_wire(const std::vector<std::byte>& payload) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Descriptor out(ends[0]), in(ends[1]);
  SocketTransfer transfer;
  transfer.is_send = true;
  transfer.payload = ByteCursor(std::vector{std::span(payload)});
  EXPECT_EQ(transfer.push(out.get()), Progress::kDone);
  std::vector<std::byte> wire(kHeaderBytes + payload.size() + kTrailerBytes);
  EXPECT_EQ(::recv(in.get(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
  wire.erase(wire.begin(), wire.begin() + kHeaderBytes);
  return wire;
}

Progress receive_from_wire(const std::vector<std::byte>& wire, size_t payload_bytes) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Descriptor out(ends[0]), in(ends[1]);
  EXPECT_EQ(::send(out.get(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
  std::vector<std::byte> payload(payload_bytes);
  SocketTransfer transfer;
  transfer.payload = ByteCursor(std::vector{std::span(payload)});
  Progress progress = Progress::kMoved;
  while (progress == Progress::kMoved) progress = transfer.pull(in.get());
  return progress;
}

TEST(Wire, AnyChangedBitOfAPayloadIsFound) {
  const auto wire = bytes_on_wire(pattern_bytes(100, 1));
  ASSERT_EQ(receive_from_wire(wire, 100), Progress::kDone);
  for (size_t bit = 0; bit < 8 * wire.size(); ++bit) {
    auto changed = wire;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(receive_from_wire(changed, 100), Progress::kCorrupt) << bit;
  }
}

TEST(Wire, ACursorCutsWindowsAcrossPieces) {
  std::vector<std::byte> memory(10);
  const std::span<std::byte> all(memory);
  ByteCursor cursor(
      std::vector<std::span<std::byte>>{all.first(3), {}, all.subspan(3, 4), all.last(3)});
  EXPECT_EQ(cursor.total(), 10u);
  cursor.advance(2);
  std::vector<iovec> window;
  EXPECT_EQ(cursor.window(window, 6, 8), 6u);
  ASSERT_EQ(window.size(), 3u);
  EXPECT_EQ(window[0].iov_len, 1u);
  EXPECT_EQ(window[1].iov_len, 4u);
  EXPECT_EQ(window[2].iov_len, 1u);
  EXPECT_EQ(window[2].iov_base, memory.data() + 7);
  window.clear();
  EXPECT_EQ(cursor.window(window, 6, 2), 5u) << "no more pieces than slots";
  cursor.advance(8);
  EXPECT_EQ(cursor.remaining(), 0u);
}

}  // namespace
}  // namespace stagecraft
