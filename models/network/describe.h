// What `partition graph` prints: blocks and totals of block graphs, as text or JSON.
//
// Give the training graph first and then those of VAE and text encoder; totals are added up by part
// over all of them. Pure functions, any thread.
#pragma once

#include <span>
#include <string>

#include "partitioner/graph/graph.h"

namespace stagecraft {

// A line for each block: name, kind, state, parameters, MACs and output bytes of one sample; then
// totals.
std::string describe_text(std::span<const BlockGraph> graphs);
std::string describe_text(const BlockGraph& graph);

// {"model", "width", "height",
//  "blocks": [{"name", "part", "section", "kind", "state", "trainable", "runs", "parameters",
//  "macs", "output_bytes"}], "parts": {"unet": {"parameters", "trainable_parameters", "tensors",
//  "macs", "output_bytes",
//                     "sections": {"input": {the same five}}}}}
// "runs" is false for a block without a path to the loss. Model and size are the first graph's.
std::string describe_json(std::span<const BlockGraph> graphs);
std::string describe_json(const BlockGraph& graph);

}  // namespace stagecraft
