#include "pipeline/comm/socket_transfer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace stagecraft {
namespace {

constexpr size_t kWindow = 256 << 10;  // small enough to be in cache when it is hashed and copied
constexpr size_t kSlots = 64;

Progress failed_call() {
  return errno == EAGAIN || errno == EINTR ? Progress::kBlocked : Progress::kClosed;
}

}  // namespace

Progress SocketTransfer::push(int fd) {
  if (hashed == payload.position() && payload.remaining() > 0) {
    std::vector<iovec> next;
    hashed += payload.window(next, kWindow, kSlots);
    for (const iovec& piece : next) checksum.update(piece);
  }
  const bool last = hashed == payload.total();
  if (last && trailer_moved == 0) trailer = encode_trailer(checksum.value());

  std::vector<iovec> window;
  if (header_moved < kHeaderBytes) {
    window.push_back(
        {.iov_base = header.data() + header_moved, .iov_len = kHeaderBytes - header_moved});
  }
  payload.window(window, hashed - payload.position(), kSlots);
  if (last) {
    window.push_back(
        {.iov_base = trailer.data() + trailer_moved, .iov_len = kTrailerBytes - trailer_moved});
  }
  msghdr message{};
  message.msg_iov = window.data();
  message.msg_iovlen = window.size();
  const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return failed_call();

  size_t left = sent;
  const size_t in_header = std::min(left, kHeaderBytes - header_moved);
  header_moved += in_header;
  left -= in_header;
  const size_t in_payload = std::min<uint64_t>(left, payload.remaining());
  payload.advance(in_payload);
  trailer_moved += left - in_payload;
  return trailer_moved == kTrailerBytes ? Progress::kDone : Progress::kMoved;
}

Progress SocketTransfer::pull(int fd) {
  std::vector<iovec> window;
  const size_t wanted = payload.window(window, kWindow, kSlots);
  if (wanted == payload.remaining()) {
    window.push_back(
        {.iov_base = trailer.data() + trailer_moved, .iov_len = kTrailerBytes - trailer_moved});
  }
  msghdr message{};
  message.msg_iov = window.data();
  message.msg_iovlen = window.size();
  const ssize_t received = ::recvmsg(fd, &message, MSG_DONTWAIT);
  if (received == 0) return Progress::kClosed;
  if (received < 0) return failed_call();

  const size_t in_payload = std::min<size_t>(received, wanted);
  std::vector<iovec> arrived;
  size_t unhashed = in_payload;
  while (unhashed > 0) {
    arrived.clear();
    const size_t bytes = payload.window(arrived, unhashed, kSlots);
    for (const iovec& piece : arrived) checksum.update(piece);
    payload.advance(bytes);
    unhashed -= bytes;
  }
  trailer_moved += received - in_payload;
  if (trailer_moved < kTrailerBytes) return Progress::kMoved;
  return decode_trailer(trailer) == checksum.value() ? Progress::kDone : Progress::kCorrupt;
}

}  // namespace stagecraft
