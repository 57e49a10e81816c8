// Counts what the process holds on the heap, by standing in front of malloc. For one source file of
// a test program. Under a sanitizer, which has an allocator of its own, nothing is counted.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "tests/support/sanitized.h"

namespace stagecraft::fuzz {

struct HeapMeter {
  std::atomic<int64_t> held = 0, peak = 0;  // bytes

  void* took(void* memory) {
    const auto size = static_cast<int64_t>(::malloc_usable_size(memory));
    const int64_t now = held.fetch_add(size, std::memory_order_relaxed) + size;
    int64_t highest = peak.load(std::memory_order_relaxed);
    while (now > highest && !peak.compare_exchange_weak(highest, now)) {
    }
    return memory;
  }
  void gives(void* memory) {
    held.fetch_sub(static_cast<int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
  }
};

inline constinit HeapMeter heap;

}  // namespace stagecraft::fuzz

#ifndef STAGECRAFT_SANITIZED
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) noexcept { return stagecraft::fuzz::heap.took(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) noexcept {
  return stagecraft::fuzz::heap.took(__libc_calloc(count, size));
}
void* realloc(void* memory, size_t size) noexcept {
  stagecraft::fuzz::heap.gives(memory);
  void* moved = __libc_realloc(memory, size);
  // When there is no room the old memory stays.
  stagecraft::fuzz::heap.took(moved == nullptr && size != 0 ? memory : moved);
  return moved;
}
void* memalign(size_t alignment, size_t size) noexcept {
  return stagecraft::fuzz::heap.took(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) noexcept { return memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) noexcept {
  void* memory = memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}
void free(void* memory) noexcept {
  stagecraft::fuzz::heap.gives(memory);
  __libc_free(memory);
}
}
#endif
