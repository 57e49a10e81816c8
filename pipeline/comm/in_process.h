// Ranks that are threads of one process: the transport of the tests of schedules and executor.
//
// Strict rendezvous, as NCCL behaves at its worst: nothing is buffered. A transfer happens when
// both its send and its receive are posted and they are the oldest unmatched ones of their ordered
// pair of ranks; then it is copied by the thread that posted second, and both operations are done.
// Tags and byte counts are compared.
//
// An error on one rank kills the world: every rank's pending and later calls throw. A communicator
// that is destroyed counts as a rank that left; a transfer with it throws PeerLostError.
// Communicators and control channels may outlive the world object. Each is used by one thread,
// `abort` by any.
#pragma once

#include <chrono>
#include <memory>

#include "pipeline/comm/communicator.h"

namespace stagecraft {

enum class PostMode {
  kAsynchronous,   // posts return at once, as the communicator promises
  kBlockingQueue,  // each post returns when its transfer is over: an order that ends this way needs
                   // no concurrency
};

class InProcessWorld {
 public:
  // No wait lasts longer than `deadline`; one that would throws CommError (10).
  InProcessWorld(int ranks, std::chrono::milliseconds deadline,
                 PostMode mode = PostMode::kAsynchronous);
  ~InProcessWorld();
  // At most one of each per rank.
  std::unique_ptr<Communicator> communicator(int rank);
  std::unique_ptr<ControlChannel> control(int rank);

  class State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace stagecraft
