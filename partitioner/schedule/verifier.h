// Proves that a schedule can run on a transport without tags and without buffers, and that it
// computes the step.
//
// Pure function, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/schedule/schedule.h"

namespace stagecraft {

// One line per fault, the first 100, empty when the schedule is accepted. Checked, in this order:
//  coverage     every stage runs F, and B (or I then W) where it has gradients, once per
//  micro-batch, on its rank;
//               backwards of a stage in ascending micro-batch (gradients are summed in that order);
//               one step, last
//  dependencies every value or gradient is there (computed here or received) before it is used, by
//  list order messages     every send has its receive; per ordered pair of ranks both sides in the
//  same sequence, equal content,
//               micro-batch, dtype and bytes; nothing sent before it is computed; content as
//               transfers_of_micro_batch says
//  machines     with zero buffering three machines reach the end: (1) one blocking queue per rank
//  in list order,
//               (2) messages of a group independent of each other, (3) a group starting as one. A
//               stuck machine prints the wait-for cycle: "rank 0 waits at S3 for rank 1 (R3), which
//               waits at S5 for rank 0".
//  memory       (when `memory_caps` is not empty) live bytes of boundary tensors and saved
//  activations per rank ≤ cap
struct VerifierOptions {
  std::vector<Bytes> memory_caps;  // per rank: what in-flight data may take; empty: not checked
  std::vector<Bytes> saved_bytes_of_stage;  // per stage and sample, for the memory check
};
std::vector<std::string> verify(const BlockGraph& graph, const Placement& placement,
                                const std::vector<int64_t>& micro_batch_sizes,
                                const Schedule& schedule, const VerifierOptions& options = {});

}  // namespace stagecraft
