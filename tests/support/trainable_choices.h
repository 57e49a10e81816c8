// What can be trained, by the names that tests/python uses, and the graph that tests train.
#pragma once

#include <array>
#include <ostream>
#include <utility>

#include "models/network/build.h"
#include "partitioner/base/mistakes.h"

namespace stagecraft {

struct TrainableChoice {
  const char* name;
  TrainableConfig config;
  friend std::ostream& operator<<(std::ostream& out, const TrainableChoice& choice) {
    return out << choice.name;
  }
};

inline const std::array kTrainableChoices = {
    TrainableChoice{"controlnet", {}},
    TrainableChoice{"unlocked",
                    {.what = "controlnet", .sd_locked = false, .only_mid_control = false}},
    TrainableChoice{"only_mid_control",
                    {.what = "controlnet", .sd_locked = true, .only_mid_control = true}},
    TrainableChoice{"unet", {.what = "unet", .sd_locked = true, .only_mid_control = false}},
};
inline const TrainableChoice& kUnlocked = kTrainableChoices[1];
inline const TrainableChoice& kOnlyMidControl = kTrainableChoices[2];
inline const TrainableChoice& kWholeUNet = kTrainableChoices[3];

// x + residual becomes (x + residual) + residual.
inline void add_middle_residual_twice(BlockGraph& graph) {
  const int index = graph.find_block("unet.sum.mid");
  if (index < 0) return;
  Block& sum = graph.blocks[static_cast<size_t>(index)];
  const auto once = static_cast<int>(sum.tensors.size()) - 1;
  sum.tensors.push_back(sum.tensors.back());
  Op again = sum.ops.back();
  again.inputs = {once, 1};
  again.output = once + 1;
  sum.ops.push_back(std::move(again));
}

inline BlockGraph training_graph(const ModelConfig& model, int64_t width, int64_t height,
                                 const TrainableChoice& choice) {
  BlockGraph graph = build_training_graph(model, width, height, choice.config);
  if (made(Mistake::kResidualAddedTwice)) add_middle_residual_twice(graph);
  return graph;
}

}  // namespace stagecraft
