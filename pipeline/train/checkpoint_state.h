// Between a rank's parameters and the files of a checkpoint: weight, Adam's moments and step count
// of every trained parameter, block by block. Frozen weights are not part of it.
//
// Used by the rank's thread, between two steps. A replicated block is frozen, so every trained
// block is on one rank only, which both runs and owns it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "partitioner/graph/graph.h"
#include "pipeline/checkpoint/block_copy.h"
#include "pipeline/checkpoint/manifest.h"
#include "pipeline/exec/rank_parameters.h"

namespace stagecraft {

// The files of a whole checkpoint, ascending.
std::vector<std::string> files_of_trained_blocks(const BlockGraph& graph);
// What they hold, headers aside.
Bytes bytes_of_trained_state(const BlockGraph& graph);

// What this rank trains, where it is: valid as long as the parameters.
std::vector<StoredBlock> trained_state(const BlockGraph& graph, const RankParameters& parameters);

// Fills this rank's trained parameters from the checkpoint in `folder`, every byte verified;
// `on_block` after each. Throws InputError as `read_block_file`.
void load_trained_state(const BlockGraph& graph, const std::string& folder,
                        const CheckpointManifest& manifest, RankParameters& parameters,
                        const std::function<void()>& on_block = {});

}  // namespace stagecraft
