// What the communicator and the control channel of one rank share: the first failure kills both.
#pragma once

#include <mutex>
#include <optional>

#include "pipeline/comm/failure.h"
#include "pipeline/comm/polling.h"

namespace stagecraft {

class SocketFate {
 public:
  explicit SocketFate(int rank) : rank_(rank) {}

  // Keeps the first failure and wakes whoever polls `event`. Any thread.
  void fail(CommFailure failure) {
    {
      std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = std::move(failure);
    }
    event_.set();
  }

  bool failed() const {
    std::lock_guard lock(mutex_);
    return failure_.has_value();
  }

  // This rank itself gave up.
  bool aborted() const {
    std::lock_guard lock(mutex_);
    return failure_ && failure_->peer == rank_;
  }

  // Throws the first failure, if there was one.
  void raise_if_failed() const {
    std::lock_guard lock(mutex_);
    if (failure_) failure_->raise(rank_);
  }

  // Readable from the first failure on.
  int event() const { return event_.get(); }

 private:
  const int rank_;
  mutable std::mutex mutex_;
  std::optional<CommFailure> failure_;
  EventFlag event_;
};

}  // namespace stagecraft
