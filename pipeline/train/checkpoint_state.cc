#include "pipeline/train/checkpoint_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

bool has_state(const Block& block) {
  return block.trainable && block.reaches_loss && !block.params.empty();
}

struct TrainedBlock {
  std::string name;
  std::vector<const ParameterSlot*> slots;
};

std::vector<TrainedBlock> trained_blocks_here(const BlockGraph& graph,
                                              const RankParameters& parameters) {
  std::map<int64_t, const ParameterSlot*> here;
  for (const ParameterSlot& slot : parameters.slots()) {
    if (slot.trained && slot.owned) here.emplace(slot.canonical, &slot);
  }
  std::vector<TrainedBlock> blocks;
  int64_t canonical = 0;
  for (const Block& block : graph.blocks) {
    const auto first = here.lower_bound(canonical);
    canonical += static_cast<int64_t>(block.params.size());
    const auto end = here.lower_bound(canonical);
    if (first == end) continue;
    TrainedBlock& trained = blocks.emplace_back();
    trained.name = block.name;
    for (auto entry = first; entry != end; ++entry) trained.slots.push_back(entry->second);
  }
  return blocks;
}

// A parameter's tensors under the names they have in the file.
template <typename Value>
std::vector<StateTensor<Value>> state_tensors(const std::vector<const ParameterSlot*>& slots) {
  std::vector<StateTensor<Value>> tensors;
  const auto add = [&tensors](const std::string& name, const at::Tensor& tensor) {
    check(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat,
          "trained state is no contiguous fp32");
    StateTensor<Value>& entry = tensors.emplace_back();
    entry.name = name;
    entry.shape = tensor.sizes().vec();
    // A tensor is a handle: const does not reach what it holds.
    entry.values = {static_cast<float*>(tensor.data_ptr()), static_cast<size_t>(tensor.numel())};
  };
  for (const ParameterSlot* slot : slots) {
    const std::string& name = slot->param->name;
    add(name, slot->weight.detach());
    add(name + ".exp_avg", slot->exp_avg);
    add(name + ".exp_avg_sq", slot->exp_avg_sq);
    add(name + ".steps", slot->steps);
  }
  return tensors;
}

}  // namespace

std::vector<std::string> files_of_trained_blocks(const BlockGraph& graph) {
  std::vector<std::string> files;
  for (const Block& block : graph.blocks) {
    if (has_state(block)) files.push_back(block_file_name(block.name));
  }
  std::sort(files.begin(), files.end());
  return files;
}

Bytes bytes_of_trained_state(const BlockGraph& graph) {
  Bytes bytes;
  for (const Block& block : graph.blocks) {
    if (!has_state(block)) continue;
    const auto counts = static_cast<int64_t>(block.params.size());
    bytes.count += (3 * block.parameters() + counts) * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

std::vector<StoredBlock> trained_state(const BlockGraph& graph, const RankParameters& parameters) {
  std::vector<StoredBlock> states;
  for (const TrainedBlock& block : trained_blocks_here(graph, parameters)) {
    StoredBlock& state = states.emplace_back();
    state.file = block_file_name(block.name);
    state.tensors = state_tensors<const float>(block.slots);
  }
  return states;
}

void load_trained_state(const BlockGraph& graph, const std::string& folder,
                        const CheckpointManifest& manifest, RankParameters& parameters,
                        const std::function<void()>& on_block) {
  for (const TrainedBlock& block : trained_blocks_here(graph, parameters)) {
    const std::string name = block_file_name(block.name);
    const auto file = std::find_if(manifest.files.begin(), manifest.files.end(),
                                   [&](const CheckpointFile& entry) { return entry.name == name; });
    if (file == manifest.files.end()) {
      throw InputError(
          ExitCode::kPlanMismatch,
          fmt::format("{}: has no {}; resume with the model it was saved from", folder, name));
    }
    read_block_file(folder, *file, state_tensors<float>(block.slots));
    if (on_block) on_block();
  }
}

}  // namespace stagecraft
