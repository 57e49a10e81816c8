// What threads that poll wait for: a flag, a deadline.
#pragma once

#include <chrono>

#include "partitioner/base/descriptor.h"

namespace stagecraft {

// A flag that poll can wait for. `set` and `clear` may be called by any thread.
class EventFlag {
 public:
  EventFlag();  // throws InputError (7) when the process is out of descriptors
  int get() const { return fd_.get(); }
  void set();
  void clear();

 private:
  Descriptor fd_;
};

// A moment of the monotonic clock.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds from_now)
      : when_(std::chrono::steady_clock::now() + from_now) {}
  bool passed() const { return std::chrono::steady_clock::now() >= when_; }
  // For poll: rounded up, 0 when it has passed.
  int remaining_ms() const;

 private:
  std::chrono::steady_clock::time_point when_;
};

}  // namespace stagecraft
