// The owner of a file descriptor. Any thread; one object by one thread at a time.
#pragma once

#include <utility>

namespace stagecraft {

// Closes its descriptor and leaves errno as it was. Movable; one owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = other.release();
    }
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();
  // Closes now, where the result counts: 0 or the error number.
  int close();

 private:
  int fd_ = -1;
};

}  // namespace stagecraft
