// The training loop of one rank, from the handshake to the saved weights.
#pragma once

#include <atomic>
#include <string>

#include "pipeline/comm/communicator.h"
#include "pipeline/data/samples.h"
#include "pipeline/launch/progress_page.h"
#include "pipeline/train/job.h"

namespace stagecraft {

// What signals ask a rank for, to be done after the step under way by all ranks together.
struct RankRequests {
  std::atomic<bool> stop{false};  // leave; stays set
  std::atomic<bool> save{false};  // a checkpoint; reset by who takes it up
};

// What a rank has around it. Everything outlives the loop.
struct RankSurroundings {
  Communicator& comm;
  ControlChannel& control;
  ProgressPage& page;  // where the loop says what it does
  RankRequests& requests;
};

enum class LoopEnd {
  kFinished,
  kStopped,     // trained for some steps, and saved
  kNotStarted,  // stopped before the first step; nothing was written
};

// Collective over all ranks. `data_identity`: what the samples were read from, compared between
// ranks. Rank 0 shows progress and writes into `job.options.out`: metrics.jsonl, the trained parts
// as diffusers folders, measured.json, and the trace if one is wanted. Installs the tracking
// allocator. Throws ConfigError (4) from the handshake, CommError, InputError (kIo),
// Error(kNonFinite).
LoopEnd run_rank(const Job& job, SampleSource& samples, const std::string& data_identity,
                 const RankSurroundings& around);

}  // namespace stagecraft
