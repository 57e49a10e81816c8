// Who failed first, and how that is said in one line. Pure functions over what the launcher saw.
#pragma once

#include <string>
#include <vector>

#include "pipeline/launch/progress_page.h"

namespace stagecraft {

// How one rank ended, in the order in which the launcher learnt it.
struct RankEnd {
  int rank = 0;
  int exit_code = 0;         // if signal is 0
  int signal = 0;            // that killed it
  bool by_launcher = false;  // ended after the launcher told it to
  ProgressSnapshot progress;
};

// The rank left after the last barrier, with 0 or (stopped by a signal, after its checkpoint) 130
// or 143.
bool left_orderly(const RankEnd& end);

// The rank's end is explained by another rank's: it said that its peer was lost.
bool is_secondary(const RankEnd& end);

// A rank that has not ended when a rank's silence reached the stall limit.
struct StalledRank {
  int rank = 0;
  bool stopped = false;  // by SIGSTOP
  Section section = Section::kStart;
};

// The likeliest cause: a rank that was stopped; else one that waits for nobody; else rank 0 if it
// saves, for which the others wait; else `first`, whose silence was noticed first.
int culprit_of_stall(const std::vector<StalledRank>& ranks, int first);

// The exit code of the run that this end means: the rank's own if it is one of ExitCode, 9 for a
// signal, an early exit or an unknown code.
ExitCode code_of(const RankEnd& end);

// "rank 2 (stage 2)". `labels` is by rank and may be empty.
std::string rank_label(int rank, const std::vector<std::string>& labels);

// ", section backward, last operation B2.1" with the step in front if there is one.
std::string describe_place(const ProgressSnapshot& progress);

// "rank 2 (stage 2) was killed by signal 9 (SIGKILL) in step 17, section backward, last operation
// B2.1".
std::string describe_end(const RankEnd& end, const std::vector<std::string>& labels);

}  // namespace stagecraft
