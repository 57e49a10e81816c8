// Why ranks wait: the idle time of a simulated step by cause. docs/report-page.md defines the
// causes.
//
// Plain values and pure functions, any thread.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {

// What an idle moment waits for is followed from rank to rank until something is met that takes
// time. A message on its way is communication; a rank that computes makes it one of the others, by
// where the idle rank stands in its list.
enum class BubbleCause {
  kWarmUp,         // before its first action, and before its first backward
  kOtherStage,     // between them and its last forward: stages are not equally fast
  kCommunication,  // sent and posted, and not through yet; or all sends of the rank under way
  kDrain,          // after its last forward, and when it has nothing left to do
};
inline constexpr int kBubbleCauses = 4;
std::string_view to_string(BubbleCause cause);  // "warm-up", "other stage's work", ...
std::string_view key_of(BubbleCause cause);     // "warm_up", "other_stage", ... for JSON

struct Bubble {
  int rank = 0;
  Nanos start, end;
  BubbleCause cause = BubbleCause::kWarmUp;
  bool operator==(const Bubble&) const = default;
};

// All idle time of all ranks, by rank, then start; what adjoins with the same cause is one bubble.
// `step` is the simulation of `schedule`: throws InternalError when it is not.
std::vector<Bubble> find_bubbles(const Schedule& schedule, const SimulatedStep& step);

// By cause. The sum over the causes of a rank is the makespan less what the rank is busy.
using BubbleSums = std::array<Nanos, kBubbleCauses>;
std::vector<BubbleSums> sum_bubbles(const std::vector<Bubble>& bubbles, size_t ranks);

}  // namespace stagecraft
