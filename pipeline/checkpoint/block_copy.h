// A block's trained state in memory of its own, so that training goes on while it is written.
//
// Owned by one thread at a time. The memory is mapped, not taken from the heap, and kept from one
// save to the next: pages that a process touches for the first time cost several times the copy.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pipeline/checkpoint/block_file.h"

namespace stagecraft {

// Where the state is while it trains.
struct StoredBlock {
  std::string file;  // its name in the checkpoint
  std::vector<StoredTensor> tensors;
};

class BlockCopy {
 public:
  BlockCopy() = default;
  BlockCopy(BlockCopy&& other) noexcept;
  BlockCopy& operator=(BlockCopy&&) = delete;
  ~BlockCopy();

  // Replaces what was there. Throws std::bad_alloc.
  void take(const StoredBlock& state);
  const StoredBlock& state() const { return state_; }  // with the tensors of the copy
  // The values are not needed any more: the system may have the memory if it runs short of it.
  void release();

 private:
  StoredBlock state_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace stagecraft
