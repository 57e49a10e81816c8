// What a training run is told on the command line, after the files were read.
//
// Plain values. The launcher's process and every rank build the same ones from the same arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "partitioner/plan/train_config.h"

namespace stagecraft {

struct TrainOptions {
  std::string plan;                   // plan.yaml
  std::optional<TrainConfig> config;  // the training file, if one was given
  std::string data;                   // folder with prompt.json
  std::string out;                    // results
  std::string weights;                // diffusers folder; empty with `init_random`
  std::string tokenizer;  // folder with vocab.json and merges.txt; default weights/tokenizer
  std::string cache;      // default data/.stagecraft_cache
  std::optional<uint64_t> init_random;  // seeded weights instead of a folder
  int64_t steps = 1000;
  uint64_t seed = 42;
  double caption_dropout = 0.0;
  OptimizerConfig optimizer;
  int evaluate_batches = 0;  // batches of the fixed set whose mean loss is shown before and after
  int threads_per_rank = 1;
  int64_t timeout_seconds = 600;     // of any single wait for a peer
  std::string audit;                 // folder for audit files; empty: none
  std::vector<int64_t> audit_steps;  // ascending, each below `steps`
  int64_t save_every = 0;            // steps between checkpoints; 0: none while it trains
  int64_t keep_last = 2;             // newest checkpoints kept
  int64_t keep_every = 0;            // and those of every so many steps; 0: none
  std::string resume;                // "auto", or a checkpoint's folder; empty: from the beginning
  std::string trace;                 // file for the last step's timeline; empty: none

  // Whether the run leaves a checkpoint when it ends or is stopped.
  bool wants_checkpoints() const { return save_every > 0 || !resume.empty(); }
};

}  // namespace stagecraft
