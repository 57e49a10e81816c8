#include "pipeline/train/trained_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "models/weights/save_folder.h"
#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

struct OwnedParam {
  const Param* param;
  int rank;
};

std::vector<OwnedParam> params_of_part(const BlockGraph& graph, const Placement& placement,
                                       const std::string& part) {
  std::vector<int> owner(graph.blocks.size(), -1);
  for (int stage = 0; stage < placement.stages(); ++stage) {
    for (const int block : placement.blocks_owned_by(graph, stage)) {
      owner[static_cast<size_t>(block)] = placement.rank_of_stage[static_cast<size_t>(stage)];
    }
  }
  std::vector<OwnedParam> params;
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    if (graph.blocks[b].part != part) continue;
    for (const Param& param : graph.blocks[b].params) params.push_back({&param, owner[b]});
  }
  return params;
}

}  // namespace

std::vector<std::string> trained_parts(const BlockGraph& graph) {
  std::vector<std::string> parts;
  for (const char* part : {"controlnet", "unet"}) {
    const bool trained =
        std::any_of(graph.blocks.begin(), graph.blocks.end(),
                    [&](const Block& block) { return block.trainable && block.part == part; });
    if (trained) parts.push_back(part);
  }
  return parts;
}

bool has_trained_parts(const BlockGraph& graph, const std::string& folder) {
  namespace fs = std::filesystem;
  const auto are_weights = [](const fs::path& file) {
    const auto endings = {".safetensors", ".index.json", ".bin", ".ckpt", ".pt", ".pth"};
    return std::any_of(endings.begin(), endings.end(),
                       [&](const char* end) { return file.string().ends_with(end); });
  };
  for (const std::string& part : trained_parts(graph)) {
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(folder + "/" + part, absent)) {
      if (are_weights(entry.path().filename())) return true;
    }
  }
  return false;
}

void save_trained_parts(const SavedTraining& what, Communicator& comm,
                        const std::function<void()>& on_tensor) {
  constexpr int kWriter = 0;
  constexpr int64_t kOutsideOfTraining = -1;
  std::map<std::string, at::Tensor> here;
  for (const ParameterSlot& slot : what.parameters.slots()) {
    if (slot.owned) here[slot.param->name] = slot.weight.detach();
  }
  int32_t sequence = 0;
  for (const std::string& part : trained_parts(what.graph)) {
    const auto params = params_of_part(what.graph, what.placement, part);
    std::optional<FolderWriter> writer;
    if (comm.rank() == kWriter) {
      std::vector<Param> table;
      for (const OwnedParam& entry : params) table.push_back(*entry.param);
      writer.emplace(SaveFolderOptions{.folder = what.folder + "/" + part, .part = part},
                     what.model, table);
    }
    for (const auto& [param, owner] : params) {
      on_tensor();
      const MessageTag tag{.step = kOutsideOfTraining, .message = sequence++};
      if (comm.rank() != kWriter) {
        if (owner != comm.rank()) continue;
        const auto tensor = std::make_shared<at::Tensor>(here.at(param->name));
        comm.send(kWriter, tag,
                  {{static_cast<const std::byte*>(tensor->const_data_ptr()), tensor->nbytes()}},
                  tensor)
            ->wait();
        continue;
      }
      at::Tensor tensor;
      if (owner == kWriter) {
        tensor = here.at(param->name);
      } else {
        const auto arriving = std::make_shared<at::Tensor>(at::empty(param->shape, at::kFloat));
        comm.receive(owner, tag,
                     {{static_cast<std::byte*>(arriving->mutable_data_ptr()), arriving->nbytes()}},
                     arriving)
            ->wait();
        tensor = *arriving;
      }
      writer->write(*param, {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())});
    }
    if (writer) writer->finish();
  }
}

}  // namespace stagecraft
