#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "pipeline/comm/describe.h"
#include "pipeline/comm/socket_loop.h"
#include "pipeline/comm/socket_parts.h"

namespace stagecraft {
namespace {

CommFailure stall_of(const SocketBoard& board, const SocketTransfer& transfer) {
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
  SocketOperation(std::shared_ptr<SocketBoard> board, TransferPtr transfer)
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
  TransferSpan on_its_way() const override { return transfer_->span; }

 private:
  std::shared_ptr<SocketBoard> board_;
  TransferPtr transfer_;
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
      : board_(std::make_shared<SocketBoard>()), loop_(board_, std::move(connections)) {
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

  std::shared_ptr<SocketBoard> board_;
  SocketLoop loop_;
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
