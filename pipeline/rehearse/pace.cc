#include "pipeline/rehearse/pace.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace stagecraft {

Deadlines::Clock::time_point Deadlines::of(Clock::time_point start, Nanos duration) const {
  return start + std::chrono::nanoseconds(duration.count) - late_;
}

void Deadlines::ended(Clock::time_point start, Nanos duration, Clock::time_point now, bool slept) {
  const Clock::time_point deadline = of(start, duration);
  const Clock::time_point whole = start + std::chrono::nanoseconds(duration.count);
  late_ = std::max(Clock::duration{}, (slept ? now : std::min(now, whole)) - deadline);
}

Pace::Pace() { ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

void Pace::sleep(Deadlines::Clock::time_point start, Nanos duration) {
  // libstdc++'s steady clock is CLOCK_MONOTONIC.
  const auto deadline = deadlines_.of(start, duration).time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(deadline);
  const timespec when{.tv_sec = seconds.count(), .tv_nsec = (deadline - seconds).count()};
  const bool sleeps = Deadlines::Clock::now().time_since_epoch() < deadline;
  while (sleeps && ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
  deadlines_.ended(start, duration, Deadlines::Clock::now(), sleeps);
}

}  // namespace stagecraft
