// The training loop of one rank, from the handshake to the saved weights.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>

#include "pipeline/comm/communicator.h"
#include "pipeline/data/samples.h"
#include "pipeline/exec/rank_executor.h"
#include "pipeline/train/job.h"

namespace stagecraft {

// What the loop tells whoever watches this rank. Called from the loop's thread, often: must be cheap.
struct RankWatch {
  // "handshake", "load", "train", "evaluate", "save".
  std::function<void(std::string_view section, int64_t step)> on_section;
  std::function<void(const Action& action, int index)> on_action;
  // Set by a signal: all ranks leave together after the step under way.
  const std::atomic<bool>* stop = nullptr;
};

enum class LoopEnd { kFinished, kStopped };

// Collective over all ranks. Rank 0 shows progress and writes into `job.options.out`: metrics.jsonl, the trained parts as
// diffusers folders, measured.json. Installs the tracking allocator: call before the process has any tensor.
// Throws ConfigError (4) from the handshake, CommError, InputError (kIo), Error(kNonFinite).
LoopEnd run_rank(const Job& job, SampleSource& samples, Communicator& comm, ControlChannel& control,
                 const RankWatch& watch);

}  // namespace stagecraft
