#include "pipeline/comm/socket_loop.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "pipeline/comm/describe.h"

namespace stagecraft {
namespace {

constexpr int kWindowsPerTurn = 8;  // then the next peer has its turn
constexpr std::chrono::milliseconds kGoodbyeLimit{1000};

}  // namespace

SocketLoop::SocketLoop(std::shared_ptr<SocketBoard> board, std::vector<Descriptor> connections)
    : board_(std::move(board)) {
  for (auto& fd : connections) peers_.emplace_back().fd = std::move(fd);
}

void SocketLoop::run() {
  try {
    while (!board_->fate->failed() && take_posted()) {
      wait_for_events();
      for (size_t peer = 0; peer < peers_.size(); ++peer) serve(peer);
    }
    if (!board_->fate->failed()) say_goodbye();
  } catch (const std::exception& error) {
    board_->fate->fail(
        {.code = ExitCode::kInternal, .text = fmt::format("I/O thread: {}", error.what())});
  }
  if (board_->fate->aborted()) {
    for (Peer& peer : peers_) {
      if (peer.fd) ::shutdown(peer.fd.get(), SHUT_RDWR);
    }
  }
  {
    std::lock_guard lock(board_->mutex);
    board_->stopped = true;
    board_->posted.clear();
  }
  board_->changed.notify_all();
  for (Peer& peer : peers_) {
    peer.sends.clear();
    peer.receives.clear();
  }
}

void SocketLoop::hang_up() {
  for (Peer& peer : peers_) peer.fd.reset();
}

bool SocketLoop::take_posted() {
  std::vector<TransferPtr> posted;
  bool closing = false;
  {
    std::lock_guard lock(board_->mutex);
    posted.swap(board_->posted);
    closing = board_->closing;
  }
  for (auto& transfer : posted) {
    Peer& peer = peers_[transfer->peer];
    if (peer.left) {
      lose(transfer->peer,
           fmt::format("rank {} has left; rank {} still has {} for it", transfer->peer,
                       board_->rank, describe_message(transfer->tag, transfer->payload.total())));
    }
    auto& queue = transfer->is_send ? peer.sends : peer.receives;
    queue.push_back(std::move(transfer));
  }
  return !closing;
}

void SocketLoop::wait_for_events() {
  entries_.assign({{.fd = board_->wake.get(), .events = POLLIN, .revents = 0},
                   {.fd = board_->fate->event(), .events = POLLIN, .revents = 0}});
  for (const Peer& peer : peers_) {
    short events = POLLRDHUP;
    if (!peer.incoming || !peer.receives.empty()) events |= POLLIN;
    if (!peer.sends.empty()) events |= POLLOUT;
    // poll skips negative descriptors: the own rank, and peers that left.
    entries_.push_back({.fd = peer.left ? -1 : peer.fd.get(), .events = events, .revents = 0});
  }
  ::poll(entries_.data(), entries_.size(), -1);
  if (entries_[0].revents != 0) board_->wake.clear();
}

void SocketLoop::serve(int index) {
  Peer& peer = peers_[index];
  const short events = entries_[2 + index].revents;
  if (events == 0 || board_->fate->failed()) return;
  const bool hung_up = (events & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0;
  if ((events & POLLIN) != 0 || hung_up) receive_from(index);
  if (peer.left || board_->fate->failed()) return;
  if (hung_up && peer.incoming && peer.receives.empty()) return lose_connection(index);
  if ((events & POLLOUT) != 0) send_to(index);
}

void SocketLoop::receive_from(int index) {
  Peer& peer = peers_[index];
  for (int turn = 0; turn < kWindowsPerTurn; ++turn) {
    if (!peer.incoming && !read_header(index)) return;
    if (peer.receives.empty() || !agrees(index)) return;
    SocketTransfer& transfer = *peer.receives.front();
    begin(transfer);
    const uint64_t before = transfer.payload.position();
    const Progress progress = transfer.pull(peer.fd.get());
    board_->moved[index] += transfer.payload.position() - before;
    if (progress == Progress::kBlocked) return;
    if (progress == Progress::kClosed) return lose_connection(index);
    if (progress == Progress::kCorrupt) {
      return board_->fate->fail(
          {.peer = index,
           .text = fmt::format(
               "{} from rank {} arrived at rank {} with a wrong checksum: the bytes changed on "
               "the way",
               describe_message(transfer.tag, transfer.payload.total()), index, board_->rank)});
    }
    if (progress == Progress::kDone) {
      peer.incoming.reset();
      finish(peer.receives);
    }
  }
}

bool SocketLoop::read_header(int index) {
  Peer& peer = peers_[index];
  const ssize_t n = ::recv(peer.fd.get(), peer.header.data() + peer.header_got,
                           kHeaderBytes - peer.header_got, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    lose_connection(index);
    return false;
  }
  peer.header_got += n;
  if (peer.header_got < kHeaderBytes) return false;
  peer.header_got = 0;
  const auto header = decode_header(peer.header);
  if (!header) {
    board_->fate->fail(
        {.peer = index,
         .text = fmt::format("rank {} sent rank {} bytes that are no message header: they "
                             "changed on the way, or the programs differ",
                             index, board_->rank)});
    return false;
  }
  if (header->kind == Kind::kGoodbye) {
    peer.left = true;
    if (!peer.sends.empty() || !peer.receives.empty()) {
      lose(index, fmt::format("rank {} left while rank {} still had transfers with it", index,
                              board_->rank));
    }
    return false;
  }
  peer.incoming = header;
  return true;
}

bool SocketLoop::agrees(int index) const {
  const Peer& peer = peers_[index];
  const SocketTransfer& expected = *peer.receives.front();
  if (peer.incoming->tag == expected.tag && peer.incoming->bytes == expected.payload.total())
    return true;
  board_->fate->fail(
      {.peer = index,
       .text = describe_mismatch(index, board_->rank,
                                 describe_message(peer.incoming->tag, peer.incoming->bytes),
                                 describe_message(expected.tag, expected.payload.total()))});
  return false;
}

void SocketLoop::send_to(int index) {
  Peer& peer = peers_[index];
  for (int turn = 0; turn < kWindowsPerTurn && !peer.sends.empty(); ++turn) {
    SocketTransfer& transfer = *peer.sends.front();
    begin(transfer);
    const uint64_t before = transfer.payload.position();
    const Progress progress = transfer.push(peer.fd.get());
    board_->moved[index] += transfer.payload.position() - before;
    if (progress == Progress::kBlocked) return;
    if (progress == Progress::kClosed) return lose_connection(index);
    if (progress == Progress::kDone) finish(peer.sends);
  }
}

void SocketLoop::begin(SocketTransfer& transfer) {
  if (transfer.span.start == TransferSpan{}.start) {
    transfer.span.start = std::chrono::steady_clock::now();
  }
}

void SocketLoop::finish(std::deque<TransferPtr>& queue) {
  queue.front()->span.end = std::chrono::steady_clock::now();
  {
    std::lock_guard lock(board_->mutex);
    queue.front()->done = true;
  }
  queue.pop_front();
  board_->changed.notify_all();
}

void SocketLoop::lose_connection(int index) {
  lose(index, fmt::format("rank {} closed the connection to rank {}: it died or was stopped", index,
                          board_->rank));
}

void SocketLoop::lose(int index, std::string text) {
  board_->fate->fail({.peer = index, .peer_lost = true, .text = std::move(text)});
}

void SocketLoop::say_goodbye() {
  const Deadline limit(kGoodbyeLimit);
  const HeaderBytes bytes = encode_header({.kind = Kind::kGoodbye, .tag = {}});
  for (Peer& peer : peers_) {
    if (!peer.fd || peer.left || !peer.sends.empty() || !peer.receives.empty()) continue;
    for (size_t sent = 0; sent < bytes.size() && !limit.passed();) {
      const ssize_t n = ::send(peer.fd.get(), bytes.data() + sent, bytes.size() - sent,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        sent += n;
      } else if (errno == EAGAIN || errno == EINTR) {
        pollfd entry{.fd = peer.fd.get(), .events = POLLOUT, .revents = 0};
        ::poll(&entry, 1, limit.remaining_ms());
      } else {
        break;
      }
    }
  }
}

}  // namespace stagecraft
