// A block's trained state in memory of its own, so that training goes on while it is written.
//
// Owned by one thread at a time. The memory is mapped, not taken from the heap, and goes back to
// the system with the object: a training process keeps what its heap once held.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pipeline/checkpoint/block_file.h"

namespace stagecraft {

class BlockCopy {
 public:
  // Copies at once. Throws std::bad_alloc.
  BlockCopy(std::string file, const std::vector<StoredTensor>& tensors);
  BlockCopy(BlockCopy&& other) noexcept;
  BlockCopy& operator=(BlockCopy&&) = delete;
  ~BlockCopy();

  const std::string& file() const { return file_; }  // its name in the checkpoint
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  std::string file_;
  std::vector<StoredTensor> tensors_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace stagecraft
