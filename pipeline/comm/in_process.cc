#include "pipeline/comm/in_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "pipeline/comm/describe.h"
#include "pipeline/comm/failure.h"

namespace stagecraft {
namespace {

using Clock = std::chrono::steady_clock;

enum class Phase { kPosted, kCopying, kDone };

struct Transfer {
  bool is_send = false;
  int sender = 0;
  int receiver = 0;
  MessageTag tag;
  int64_t bytes = 0;
  std::vector<std::span<const std::byte>> source;
  std::vector<std::span<std::byte>> target;
  std::shared_ptr<void> keep_alive;
  Phase phase = Phase::kPosted;  // guarded by the world's mutex
  TransferSpan span{};           // complete when it is done

  int rank() const { return is_send ? sender : receiver; }  // the one that posted it
  int peer() const { return is_send ? receiver : sender; }
  std::string describe() const { return describe_message(tag, bytes); }
};

template <class Piece>
int64_t total_bytes(const std::vector<Piece>& pieces) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += static_cast<int64_t>(piece.size());
  return bytes;
}

// Both lists hold the same number of bytes, split anywhere.
void copy_pieces(const std::vector<std::span<const std::byte>>& source,
                 const std::vector<std::span<std::byte>>& target) {
  size_t in = 0, in_offset = 0;
  for (auto out : target) {
    while (!out.empty()) {
      if (in_offset == source[in].size()) {
        ++in;
        in_offset = 0;
        continue;
      }
      const size_t n = std::min(out.size(), source[in].size() - in_offset);
      std::memcpy(out.data(), source[in].data() + in_offset, n);
      out = out.subspan(n);
      in_offset += n;
    }
  }
}

struct Channel {  // one ordered pair of ranks
  std::deque<std::shared_ptr<Transfer>> sends;
  std::deque<std::shared_ptr<Transfer>> receives;
};

struct Gather {  // the control collective that is being filled
  std::string what;
  std::vector<std::optional<std::string>> names;
  std::vector<std::string> payloads;
  int arrived = 0;
  bool complete = false;
};

}  // namespace

class InProcessWorld::State {
 public:
  State(int ranks, std::chrono::milliseconds deadline, PostMode mode)
      : ranks_(ranks),
        deadline_(deadline),
        mode_(mode),
        channels_(static_cast<size_t>(ranks) * ranks),
        copying_(ranks, 0),
        left_(ranks, false),
        left_control_(ranks, false) {}

  int ranks() const { return ranks_; }
  PostMode mode() const { return mode_; }

  void post(const std::shared_ptr<Transfer>& transfer) {
    const int rank = transfer->rank();
    const int peer = transfer->peer();
    check(peer >= 0 && peer < ranks_ && peer != rank,
          "a message goes to another rank of the world");
    std::unique_lock lock(mutex_);
    raise_if_failed(rank);
    if (left_[peer]) {
      fail(rank, {.peer = peer,
                  .peer_lost = true,
                  .text = fmt::format("rank {} has left; rank {} still has {} for it", peer, rank,
                                      transfer->describe())});
    }
    Channel& channel = channel_of(transfer->sender, transfer->receiver);
    (transfer->is_send ? channel.sends : channel.receives).push_back(transfer);
    if (channel.sends.empty() || channel.receives.empty()) return;
    // One side was waiting and this thread alone posts for the other, so there is exactly one
    // match.
    const auto send = channel.sends.front();
    const auto receive = channel.receives.front();
    channel.sends.pop_front();
    channel.receives.pop_front();
    if (send->tag != receive->tag || send->bytes != receive->bytes) {
      fail(rank, {.peer = peer,
                  .text = describe_mismatch(send->sender, send->receiver, send->describe(),
                                            receive->describe())});
    }
    send->phase = receive->phase = Phase::kCopying;
    ++copying_[rank];
    ++copying_[peer];
    lock.unlock();
    send->span.start = receive->span.start = Clock::now();
    copy_pieces(send->source, receive->target);
    send->span.end = receive->span.end = Clock::now();
    lock.lock();
    --copying_[rank];
    --copying_[peer];
    send->phase = receive->phase = Phase::kDone;
    changed_.notify_all();
  }

  // Returns when the transfer's memory is the caller's again; throws if it did not take place.
  void wait(Transfer& transfer) {
    std::unique_lock lock(mutex_);
    const auto over = [&] {
      return transfer.phase == Phase::kDone || (failure_ && transfer.phase == Phase::kPosted);
    };
    if (!changed_.wait_until(lock, Clock::now() + deadline_, over)) {
      if (transfer.phase == Phase::kCopying) {
        changed_.wait(lock, over);
      } else {
        fail(transfer.rank(),
             {.code = ExitCode::kStall, .peer = transfer.peer(), .text = describe_stall(transfer)});
      }
    }
    if (transfer.phase != Phase::kDone) raise_if_failed(transfer.rank());
  }

  std::vector<std::string> all_gather(int rank, std::string_view what, std::string_view payload) {
    std::unique_lock lock(mutex_);
    raise_if_failed(rank);
    if (!gather_) {
      gather_ = std::make_shared<Gather>();
      gather_->names.resize(ranks_);
      gather_->payloads.resize(ranks_);
    }
    const auto gather = gather_;
    for (int other = 0; other < ranks_; ++other) {
      if (left_control_[other] && !gather->names[other]) {
        fail(rank, lost_in_gather(other, what));
      }
      if (gather->names[other] && *gather->names[other] != what) {
        fail(rank, {.peer = other,
                    .text = fmt::format("rank {} is at \"{}\" but rank {} is at \"{}\"", rank, what,
                                        other, *gather->names[other])});
      }
    }
    gather->what = what;
    gather->names[rank] = std::string(what);
    gather->payloads[rank] = std::string(payload);
    if (++gather->arrived == ranks_) {
      gather->complete = true;
      gather_.reset();
      changed_.notify_all();
    }
    const auto over = [&] { return gather->complete || failure_; };
    if (!changed_.wait_until(lock, Clock::now() + deadline_, over)) {
      fail(rank, missing_failure(*gather, rank, what));
    }
    if (!gather->complete) raise_if_failed(rank);
    return gather->payloads;
  }

  void abort(int rank, const std::string& reason) {
    std::unique_lock lock(mutex_);
    if (!failure_) {
      failure_ = {.peer = rank,
                  .peer_lost = true,
                  .text = fmt::format("rank {} aborted: {}", rank, reason)};
      changed_.notify_all();
    }
  }

  // The rank's communicator is destroyed: its memory must not be touched any more.
  void leave(int rank) {
    std::unique_lock lock(mutex_);
    left_[rank] = true;
    for (int peer = 0; peer < ranks_; ++peer) {
      Channel& out = channel_of(rank, peer);
      Channel& in = channel_of(peer, rank);
      if (!failure_ &&
          !(out.sends.empty() && out.receives.empty() && in.sends.empty() && in.receives.empty())) {
        failure_ = {.peer = rank,
                    .peer_lost = true,
                    .text = fmt::format("rank {} has left, its transfers with rank {} unfinished",
                                        rank, peer)};
      }
      out.sends.clear();
      in.receives.clear();
    }
    changed_.notify_all();
    changed_.wait(lock, [&] { return copying_[rank] == 0; });
  }

  void leave_control(int rank) {
    std::unique_lock lock(mutex_);
    left_control_[rank] = true;
    if (gather_ && !failure_) {
      failure_ = lost_in_gather(rank, gather_->what);
      changed_.notify_all();
    }
  }

 private:
  Channel& channel_of(int sender, int receiver) {
    return channels_[static_cast<size_t>(sender) * ranks_ + receiver];
  }

  void raise_if_failed(int rank) const {
    if (failure_) failure_->raise(rank);
  }

  // Keeps the first failure, wakes everyone, throws it. The mutex is held.
  [[noreturn]] void fail(int rank, CommFailure failure) {
    if (!failure_) failure_ = std::move(failure);
    changed_.notify_all();
    failure_->raise(rank);
  }

  static CommFailure lost_in_gather(int rank, std::string_view what) {
    return {.peer = rank,
            .peer_lost = true,
            .text = fmt::format("rank {} left before \"{}\"", rank, what)};
  }

  std::string describe_stall(const Transfer& transfer) const {
    return transfer.is_send
               ? fmt::format("rank {} waited {} for rank {} to receive {}", transfer.sender,
                             describe_duration(deadline_), transfer.receiver, transfer.describe())
               : fmt::format("rank {} waited {} for {} from rank {}", transfer.receiver,
                             describe_duration(deadline_), transfer.describe(), transfer.sender);
  }

  CommFailure missing_failure(const Gather& gather, int rank, std::string_view what) const {
    std::vector<int> missing;
    for (int other = 0; other < ranks_; ++other) {
      if (!gather.names[other]) missing.push_back(other);
    }
    return {.code = ExitCode::kStall,
            .peer = missing.front(),
            .text = fmt::format("rank {} waited {} in \"{}\" for rank {}", rank,
                                describe_duration(deadline_), what, fmt::join(missing, ", "))};
  }

  const int ranks_;
  const std::chrono::milliseconds deadline_;
  const PostMode mode_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Channel> channels_;       // [sender * ranks + receiver]
  std::vector<int> copying_;            // by rank: copies under way from or to its memory
  std::vector<bool> left_;              // by rank: its communicator is gone
  std::vector<bool> left_control_;      // by rank: its control channel is gone
  std::shared_ptr<Gather> gather_;      // null between collectives
  std::optional<CommFailure> failure_;  // the first one
};

namespace {

class InProcessOperation : public Operation {
 public:
  InProcessOperation(std::shared_ptr<InProcessWorld::State> state,
                     std::shared_ptr<Transfer> transfer)
      : state_(std::move(state)), transfer_(std::move(transfer)) {}

  void wait() override {
    state_->wait(*transfer_);
    transfer_->keep_alive.reset();
  }
  TransferSpan on_its_way() const override { return transfer_->span; }

 private:
  std::shared_ptr<InProcessWorld::State> state_;
  std::shared_ptr<Transfer> transfer_;
};

class InProcessCommunicator : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<InProcessWorld::State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}
  ~InProcessCommunicator() override { state_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return state_->ranks(); }

  std::shared_ptr<Operation> send(int peer, MessageTag tag,
                                  std::vector<std::span<const std::byte>> pieces,
                                  std::shared_ptr<void> keep_alive) override {
    auto transfer = std::make_shared<Transfer>();
    *transfer = {.is_send = true,
                 .sender = rank_,
                 .receiver = peer,
                 .tag = tag,
                 .bytes = total_bytes(pieces),
                 .source = std::move(pieces),
                 .target = {},
                 .keep_alive = std::move(keep_alive)};
    bytes_sent_ += transfer->bytes;
    return post(std::move(transfer));
  }

  std::shared_ptr<Operation> receive(int peer, MessageTag tag,
                                     std::vector<std::span<std::byte>> pieces,
                                     std::shared_ptr<void> keep_alive) override {
    auto transfer = std::make_shared<Transfer>();
    *transfer = {.is_send = false,
                 .sender = peer,
                 .receiver = rank_,
                 .tag = tag,
                 .bytes = total_bytes(pieces),
                 .source = {},
                 .target = std::move(pieces),
                 .keep_alive = std::move(keep_alive)};
    return post(std::move(transfer));
  }

  void abort(const std::string& reason) override { state_->abort(rank_, reason); }
  int64_t bytes_sent() const override { return bytes_sent_; }

 private:
  std::shared_ptr<Operation> post(std::shared_ptr<Transfer> transfer) {
    state_->post(transfer);
    auto operation = std::make_shared<InProcessOperation>(state_, std::move(transfer));
    if (state_->mode() == PostMode::kBlockingQueue) operation->wait();
    return operation;
  }

  std::shared_ptr<InProcessWorld::State> state_;
  const int rank_;
  std::atomic<int64_t> bytes_sent_ = 0;
};

class InProcessControl : public ControlChannel {
 public:
  InProcessControl(std::shared_ptr<InProcessWorld::State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}
  ~InProcessControl() override { state_->leave_control(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return state_->ranks(); }
  std::vector<std::string> all_gather(std::string_view what, std::string_view payload) override {
    check(payload.size() <= kMaxControlPayload, "a control payload is at most 16 MiB");
    return state_->all_gather(rank_, what, payload);
  }

 private:
  std::shared_ptr<InProcessWorld::State> state_;
  const int rank_;
};

}  // namespace

InProcessWorld::InProcessWorld(int ranks, std::chrono::milliseconds deadline, PostMode mode) {
  check(ranks >= 1, "a world has at least one rank");
  state_ = std::make_shared<State>(ranks, deadline, mode);
}

InProcessWorld::~InProcessWorld() = default;

std::unique_ptr<Communicator> InProcessWorld::communicator(int rank) {
  check(rank >= 0 && rank < state_->ranks(), "the rank is one of the world");
  return std::make_unique<InProcessCommunicator>(state_, rank);
}

std::unique_ptr<ControlChannel> InProcessWorld::control(int rank) {
  check(rank >= 0 && rank < state_->ranks(), "the rank is one of the world");
  return std::make_unique<InProcessControl>(state_, rank);
}

}  // namespace stagecraft
