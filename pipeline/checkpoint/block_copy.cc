#include "pipeline/checkpoint/block_copy.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

namespace stagecraft {

BlockCopy::BlockCopy(std::string file, const std::vector<StoredTensor>& tensors)
    : file_(std::move(file)), tensors_(tensors) {
  for (const StoredTensor& tensor : tensors) bytes_ += tensor.values.size_bytes();
  if (bytes_ == 0) return;
  memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  auto* next = static_cast<float*>(memory_);
  for (StoredTensor& tensor : tensors_) {
    if (!tensor.values.empty()) {
      std::memcpy(next, tensor.values.data(), tensor.values.size_bytes());
    }
    tensor.values = {next, tensor.values.size()};
    next += tensor.values.size();
  }
}

BlockCopy::BlockCopy(BlockCopy&& other) noexcept
    : file_(std::move(other.file_)),
      tensors_(std::move(other.tensors_)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {}

BlockCopy::~BlockCopy() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

}  // namespace stagecraft
