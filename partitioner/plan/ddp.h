// What the same training needs on one device and under data parallel (DDP), line by line: as the
// known trainers do it, and done right. Nothing here is about a pipeline.
//
// The known trainers (cldm on Lightning with `sd_locked`) leave the frozen network out of the
// optimizer only: its weights stay in fp32 and `requires_grad` stays on, so gradients that nobody
// uses are computed and kept wherever the backward pass goes through; and DDP's reducer allocates
// one bucket element for every `requires_grad` element, on every rank alike. The often repeated
// explanation, that the first GPU needs more because it averages everybody's gradients, is not how
// DDP works: all ranks need the same. Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/graph/graph.h"
#include "partitioner/simulate/memory_model.h"

namespace stagecraft {

// Networks that are resident in the known trainers, but not in the training graph.
struct OtherParameters {
  int64_t vae = 0, text_encoder = 0;  // elements
};

struct AccountLine {
  std::string name;
  Bytes one_device, data_parallel;
};

struct MemoryAccount {
  std::vector<AccountLine> lines;
  AccountLine sum() const;
};

// Weights, gradients, optimizer and reducer buckets in fp32 (automatic mixed precision keeps fp32
// parameters). Activations, workspace and context come on top.
MemoryAccount known_trainers_account(const BlockGraph& graph, const OtherParameters& other);

// Frozen blocks held once and in half precision when training is mixed, no gradients for them, text
// and image encoders not resident, gradients as views of the buckets: the lines of the memory model
// with everything on one stage, for the whole batch and for one device's part of it.
MemoryAccount done_right_account(const RankMemory& one_device, const RankMemory& data_parallel);

}  // namespace stagecraft
