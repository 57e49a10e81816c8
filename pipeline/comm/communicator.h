// Moves messages between ranks, in order, without tags in the transport and without buffering
// semantics.
//
// A communicator belongs to one rank. `send` and `receive` return at once; the memory they name
// must stay untouched (send) and unread (receive) until the returned operation's `wait` returned.
// `keep_alive` is held until then. Per ordered pair of ranks, messages complete in the order in
// which they were posted; both sides must post the same sequence. Calls come from one thread (the
// rank's executor), except `abort`, which any thread may call. After any error the communicator is
// dead: every later call throws the first error again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "partitioner/base/error.h"

namespace stagecraft {

// The peer vanished or left (9): the cause lies with it, not with the rank that throws. A program
// that ends because of it is a secondary casualty and says so (ProgressPage), so that the launcher
// names the peer.
class PeerLostError : public CommError {
 public:
  PeerLostError(int peer, const std::string& message)
      : CommError(ExitCode::kRankDied, peer, message) {}
};

struct MessageTag {
  int64_t step = 0;     // training step, or -1 outside of training
  int32_t message = 0;  // index in the plan's table, or a sequence number outside of training
  bool operator==(const MessageTag&) const = default;
};

// When a message's bytes moved, as one side saw it. On the steady clock, which all processes of a
// host share.
struct TransferSpan {
  std::chrono::steady_clock::time_point start;  // the first byte could move, after those before it
  std::chrono::steady_clock::time_point end;    // the last had moved: into the kernel, on a sender
};

class Operation {
 public:
  virtual ~Operation() = default;
  // Blocks until the transfer is over. Throws CommError: peer died (9), deadline passed (10),
  // corrupt or unexpected message (9, naming step, message, expected and found).
  virtual void wait() = 0;
  // After `wait` returned.
  virtual TransferSpan on_its_way() const = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The pieces travel as one message of their summed bytes; the receiver may split it into pieces
  // differently.
  virtual std::shared_ptr<Operation> send(int peer, MessageTag tag,
                                          std::vector<std::span<const std::byte>> pieces,
                                          std::shared_ptr<void> keep_alive) = 0;
  virtual std::shared_ptr<Operation> receive(int peer, MessageTag tag,
                                             std::vector<std::span<std::byte>> pieces,
                                             std::shared_ptr<void> keep_alive) = 0;
  // Wakes every waiter with a CommError carrying `reason`.
  virtual void abort(const std::string& reason) = 0;
  // Payload bytes sent so far, for reports.
  virtual int64_t bytes_sent() const = 0;
};

inline constexpr size_t kMaxControlPayload = size_t{16} << 20;

// Lies under every communicator: handshake, votes, norm gather, barrier, stop. Small payloads only
// (≤ 16 MiB). One collective; everything else is written with it. Called by one thread, by all
// ranks in the same order.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Payloads of all ranks, by rank. Blocks; throws CommError as above. `what` names the collective
  // and is compared between the ranks ("handshake", "norm of step 12"), so that ranks that went
  // apart are told, not mixed up.
  virtual std::vector<std::string> all_gather(std::string_view what, std::string_view payload) = 0;
};

}  // namespace stagecraft
