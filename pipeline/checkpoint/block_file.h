// One file of a checkpoint: the trained state of one block, a safetensors file of fp32 tensors.
//
// One thread at a time; blocks on the disk.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pipeline/checkpoint/manifest.h"

namespace stagecraft {

template <typename Value>
struct StateTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<Value> values;  // as many as `shape` says
};
using StoredTensor = StateTensor<const float>;
using TensorToFill = StateTensor<float>;

// "controlnet.conv_in.safetensors"
std::string block_file_name(const std::string& block);

// Writes `folder`/`name` (beside, fsynced, renamed) and returns size and SHA-256 of what was meant
// to be written, computed on the way: it is never read back from a disk that may have changed it.
// Throws InputError(kIo).
CheckpointFile write_block_file(const std::string& folder, const std::string& name,
                                const std::vector<StoredTensor>& tensors);

// Fills the tensors from `folder`/`expected.name`, hashing the bytes as they come. Throws
// InputError: kNoCheckpoint when size or SHA-256 differ (the memory may be filled by then), when
// the file is damaged, or a value is NaN or infinite; kPlanMismatch for other tensors; kIo.
void read_block_file(const std::string& folder, const CheckpointFile& expected,
                     const std::vector<TensorToFill>& tensors);

}  // namespace stagecraft
