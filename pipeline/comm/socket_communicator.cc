#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "pipeline/comm/describe.h"
#include "pipeline/comm/polling.h"
#include "pipeline/comm/socket_parts.h"
#include "pipeline/comm/socket_transfer.h"

namespace stagecraft {
namespace {

using TransferPtr = std::shared_ptr<SocketTransfer>;

constexpr int kWindowsPerTurn = 8;  // then the next peer has its turn
constexpr std::chrono::milliseconds kGoodbyeLimit{1000};

// A connection as the I/O thread sees it.
struct Peer {
  Descriptor fd;
  std::deque<TransferPtr> sends;
  std::deque<TransferPtr> receives;
  HeaderBytes header{};  // of the message that comes next, read ahead of its receive
  size_t header_got = 0;
  std::optional<Header> incoming;  // set when the header is complete
  bool left = false;               // said goodbye
};

// Waiting threads and I/O thread meet here. Operations hold it, so that they may outlive the
// communicator.
struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<TransferPtr> posted;  // not yet taken by the I/O thread
  bool stopped = false;             // the I/O thread touches no transfer any more
  bool closing = false;
  std::shared_ptr<SocketFate> fate;
  EventFlag wake;
  std::vector<std::atomic<int64_t>>
      moved;  // payload bytes by peer, both directions: a sign of life
  int rank = 0;
  std::chrono::milliseconds deadline{};
};

CommFailure stall_of(const Board& board, const SocketTransfer& transfer) {
  const std::string message = describe_message(transfer.tag, transfer.payload.total());
  const std::string limit = describe_duration(board.deadline);
  return {.code = ExitCode::kStall,
          .peer = transfer.peer,
          .text = transfer.is_send ? fmt::format("rank {} waited {} for rank {} to receive {}",
                                                 board.rank, limit, transfer.peer, message)
                                   : fmt::format("rank {} waited {} for {} from rank {}",
                                                 board.rank, limit, message, transfer.peer)};
}

class SocketOperation : public Operation {
 public:
  SocketOperation(std::shared_ptr<Board> board, TransferPtr transfer)
      : board_(std::move(board)), transfer_(std::move(transfer)) {}

  void wait() override {
    std::unique_lock lock(board_->mutex);
    const auto over = [&] { return transfer_->done || board_->stopped; };
    const auto& moved = board_->moved[transfer_->peer];
    int64_t seen = moved;
    while (!board_->changed.wait_until(lock, std::chrono::steady_clock::now() + board_->deadline,
                                       over)) {
      if (moved != seen) {  // slow, not silent
        seen = moved;
        continue;
      }
      board_->fate->fail(stall_of(*board_, *transfer_));
      board_->changed.wait(lock, over);
      break;
    }
    if (!transfer_->done) {
      board_->fate->raise_if_failed();
      throw CommError(ExitCode::kRankDied, transfer_->peer,
                      "the communicator was closed with a transfer unfinished");
    }
    lock.unlock();
    transfer_->keep_alive.reset();
  }

 private:
  std::shared_ptr<Board> board_;
  TransferPtr transfer_;
};

// Owns the connections; runs in a thread of its own until something fails or the communicator
// closes.
class IoLoop {
 public:
  IoLoop(std::shared_ptr<Board> board, std::vector<Descriptor> connections)
      : board_(std::move(board)) {
    for (auto& fd : connections) peers_.emplace_back().fd = std::move(fd);
  }

  void run() {
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

  // The peers see the end at once. After the thread has ended.
  void hang_up() {
    for (Peer& peer : peers_) peer.fd.reset();
  }

 private:
  // False when the communicator closes and nothing is under way.
  bool take_posted() {
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

  void wait_for_events() {
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

  void serve(int index) {
    Peer& peer = peers_[index];
    const short events = entries_[2 + index].revents;
    if (events == 0 || board_->fate->failed()) return;
    const bool hung_up = (events & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0;
    if ((events & POLLIN) != 0 || hung_up) receive_from(index);
    if (peer.left || board_->fate->failed()) return;
    if (hung_up && peer.incoming && peer.receives.empty()) return lose_connection(index);
    if ((events & POLLOUT) != 0) send_to(index);
  }

  void receive_from(int index) {
    Peer& peer = peers_[index];
    for (int turn = 0; turn < kWindowsPerTurn; ++turn) {
      if (!peer.incoming && !read_header(index)) return;
      if (peer.receives.empty() || !agrees(index)) return;
      SocketTransfer& transfer = *peer.receives.front();
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

  // True when the header of the next message is complete.
  bool read_header(int index) {
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

  // The header that came and the oldest receive.
  bool agrees(int index) {
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

  void send_to(int index) {
    Peer& peer = peers_[index];
    for (int turn = 0; turn < kWindowsPerTurn && !peer.sends.empty(); ++turn) {
      SocketTransfer& transfer = *peer.sends.front();
      const uint64_t before = transfer.payload.position();
      const Progress progress = transfer.push(peer.fd.get());
      board_->moved[index] += transfer.payload.position() - before;
      if (progress == Progress::kBlocked) return;
      if (progress == Progress::kClosed) return lose_connection(index);
      if (progress == Progress::kDone) finish(peer.sends);
    }
  }

  void finish(std::deque<TransferPtr>& queue) {
    {
      std::lock_guard lock(board_->mutex);
      queue.front()->done = true;
    }
    queue.pop_front();
    board_->changed.notify_all();
  }

  void lose_connection(int index) {
    lose(index, fmt::format("rank {} closed the connection to rank {}: it died or was stopped",
                            index, board_->rank));
  }

  void lose(int index, std::string text) {
    board_->fate->fail({.peer = index, .peer_lost = true, .text = std::move(text)});
  }

  // Only with nothing unfinished: otherwise closing the connection tells the peers that this rank
  // is gone.
  void say_goodbye() {
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

  std::shared_ptr<Board> board_;
  std::vector<Peer> peers_;  // by rank
  std::vector<pollfd> entries_;
};

// Signals are the main thread's business.
std::thread start_without_signals(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

class SocketCommunicator : public Communicator {
 public:
  SocketCommunicator(const SocketWorldOptions& options, std::vector<Descriptor> connections,
                     std::shared_ptr<SocketFate> fate)
      : board_(std::make_shared<Board>()), loop_(board_, std::move(connections)) {
    board_->fate = std::move(fate);
    board_->moved = std::vector<std::atomic<int64_t>>(options.size);
    board_->rank = options.rank;
    board_->deadline = options.deadline;
    thread_ = start_without_signals([this] {
      pthread_setname_np(pthread_self(), "stagecraft-io");
      loop_.run();
    });
  }

  ~SocketCommunicator() override {
    {
      std::lock_guard lock(board_->mutex);
      board_->closing = true;
    }
    board_->wake.set();
    thread_.join();
    loop_.hang_up();
  }

  int rank() const override { return board_->rank; }
  int size() const override { return static_cast<int>(board_->moved.size()); }

  std::shared_ptr<Operation> send(int peer, MessageTag tag,
                                  std::vector<std::span<const std::byte>> pieces,
                                  std::shared_ptr<void> keep_alive) override {
    auto transfer = make_transfer(peer, tag, std::move(keep_alive));
    transfer->is_send = true;
    transfer->payload = ByteCursor(pieces);
    transfer->header = encode_header({.tag = tag, .bytes = transfer->payload.total()});
    bytes_sent_ += transfer->payload.total();
    return post(std::move(transfer));
  }

  std::shared_ptr<Operation> receive(int peer, MessageTag tag,
                                     std::vector<std::span<std::byte>> pieces,
                                     std::shared_ptr<void> keep_alive) override {
    auto transfer = make_transfer(peer, tag, std::move(keep_alive));
    transfer->payload = ByteCursor(pieces);
    return post(std::move(transfer));
  }

  void abort(const std::string& reason) override {
    board_->fate->fail({.peer = board_->rank,
                        .peer_lost = true,
                        .text = fmt::format("rank {} aborted: {}", rank(), reason)});
  }

  int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  TransferPtr make_transfer(int peer, MessageTag tag, std::shared_ptr<void> keep_alive) const {
    check(peer >= 0 && peer < size() && peer != rank(),
          "a message goes to another rank of the world");
    auto transfer = std::make_shared<SocketTransfer>();
    transfer->peer = peer;
    transfer->tag = tag;
    transfer->keep_alive = std::move(keep_alive);
    return transfer;
  }

  std::shared_ptr<Operation> post(TransferPtr transfer) {
    board_->fate->raise_if_failed();
    {
      std::lock_guard lock(board_->mutex);
      board_->posted.push_back(transfer);
    }
    board_->wake.set();
    return std::make_shared<SocketOperation>(board_, std::move(transfer));
  }

  std::shared_ptr<Board> board_;
  IoLoop loop_;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Communicator> make_socket_communicator(const SocketWorldOptions& options,
                                                       std::vector<Descriptor> connections,
                                                       std::shared_ptr<SocketFate> fate) {
  return std::make_unique<SocketCommunicator>(options, std::move(connections), std::move(fate));
}

}  // namespace stagecraft
