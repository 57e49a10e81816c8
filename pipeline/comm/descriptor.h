// Owners of file descriptors, and the deadline that polls on them share.
#pragma once

#include <chrono>
#include <utility>

namespace stagecraft {

// Closes its descriptor. Movable; one owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

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
