#include "pipeline/comm/polling.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "partitioner/base/error.h"

namespace stagecraft {

EventFlag::EventFlag() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) {
    throw InputError(ExitCode::kIo,
                     fmt::format("cannot create an event descriptor: {}; raise `ulimit -n`",
                                 std::strerror(errno)));
  }
}

void EventFlag::set() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is set.
  [[maybe_unused]] const auto n = ::write(fd_.get(), &one, sizeof one);
}

void EventFlag::clear() {
  uint64_t count = 0;
  [[maybe_unused]] const auto n = ::read(fd_.get(), &count, sizeof count);
}

int Deadline::remaining_ms() const {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(when_ - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000'000));
}

}  // namespace stagecraft
