#include "pipeline/checkpoint/block_copy.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

namespace stagecraft {

BlockCopy::BlockCopy(BlockCopy&& other) noexcept
    : state_(std::move(other.state_)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

BlockCopy::~BlockCopy() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

void BlockCopy::take(const StoredBlock& state) {
  size_t bytes = 0;
  for (const StoredTensor& tensor : state.tensors) bytes += tensor.values.size_bytes();
  if (bytes != bytes_) {
    if (memory_ != nullptr) ::munmap(std::exchange(memory_, nullptr), std::exchange(bytes_, 0));
    void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = memory;
    bytes_ = bytes;
  }
  state_ = state;
  auto* next = static_cast<float*>(memory_);
  for (StoredTensor& tensor : state_.tensors) {
    if (tensor.values.empty()) continue;
    std::memcpy(next, tensor.values.data(), tensor.values.size_bytes());
    tensor.values = {next, tensor.values.size()};
    next += tensor.values.size();
  }
}

void BlockCopy::release() {
  if (memory_ != nullptr) ::madvise(memory_, bytes_, MADV_FREE);
}

}  // namespace stagecraft
