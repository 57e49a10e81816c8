// A rank's loop as the others see it: where it is, told to the progress page, and what it gathers
// from all ranks.
//
// Used by the rank's thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "partitioner/base/error.h"
#include "pipeline/comm/communicator.h"
#include "pipeline/exec/rank_executor.h"
#include "pipeline/launch/progress_page.h"

namespace stagecraft {

class LoopControl {
 public:
  // Both outlive this.
  LoopControl(ControlChannel& control, ProgressPage& page) : control_(control), page_(page) {}

  bool first_rank() const { return control_.rank() == 0; }
  ControlChannel& channel() { return control_; }

  void begin_step(int64_t step) { step_ = step; }
  void enter(Section section) { page_.set_section(section, step_); }
  void beat() { page_.beat(); }
  // From now on the page says which action the executor is at, and whether it waits. This outlives
  // the executor.
  void follow(RankExecutor& executor);

  // ControlChannel::all_gather, as a vote.
  std::vector<std::string> gather(std::string_view what, std::string_view payload);

  template <typename Plain>
  std::vector<Plain> gather_plain(std::string_view what, const Plain& mine) {
    static_assert(std::is_trivially_copyable_v<Plain>);
    const auto texts = gather(what, {reinterpret_cast<const char*>(&mine), sizeof(mine)});
    std::vector<Plain> all(texts.size());
    for (size_t r = 0; r < texts.size(); ++r) {
      check(texts[r].size() == sizeof(Plain), "a rank's facts have a wrong size");
      std::memcpy(&all[r], texts[r].data(), sizeof(Plain));
    }
    return all;
  }

 private:
  ControlChannel& control_;
  ProgressPage& page_;
  int64_t step_ = -1;
};

}  // namespace stagecraft
