#include "pipeline/exec/tracking_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace stagecraft {
namespace {

std::atomic<int64_t> current_bytes{0};
std::atomic<int64_t> peak_bytes{0};
std::atomic<int64_t> mark_bytes{0};

void raise_to(std::atomic<int64_t>& highest, int64_t now) {
  int64_t seen = highest.load(std::memory_order_relaxed);
  while (now > seen && !highest.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

// The size stands in a header of one alignment unit in front of the data, since oneDNN frees by
// pointer alone.
constexpr size_t kAlignment = 64;

void release(void* data) {
  if (data == nullptr) return;
  auto* base = static_cast<char*>(data) - kAlignment;
  size_t size = 0;
  std::memcpy(&size, base, sizeof(size));
  current_bytes.fetch_sub(static_cast<int64_t>(size), std::memory_order_relaxed);
  std::free(base);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    void* base = nullptr;
    if (size > SIZE_MAX - kAlignment || posix_memalign(&base, kAlignment, size + kAlignment) != 0) {
      throw std::bad_alloc();
    }
    std::memcpy(base, &size, sizeof(size));
    const int64_t now =
        current_bytes.fetch_add(static_cast<int64_t>(size), std::memory_order_relaxed) +
        static_cast<int64_t>(size);
    raise_to(peak_bytes, now);
    raise_to(mark_bytes, now);
    void* data = static_cast<char*>(base) + kAlignment;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
};

}  // namespace

void TrackingAllocator::install() {
  static Allocator allocator;
  static const bool installed = [] {
    // Blocks take and free the same large tensors in every micro-batch. glibc would map each anew
    // and have the kernel clear its pages again; without maps and trimming it keeps them for the
    // next one.
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
    c10::SetCPUAllocator(&allocator, /*priority=*/255);
    return true;
  }();
  static_cast<void>(installed);
}

Bytes TrackingAllocator::current() { return {current_bytes.load(std::memory_order_relaxed)}; }
Bytes TrackingAllocator::peak() { return {peak_bytes.load(std::memory_order_relaxed)}; }
void TrackingAllocator::reset_peak() {
  peak_bytes.store(current().count, std::memory_order_relaxed);
}
Bytes TrackingAllocator::mark() { return {mark_bytes.load(std::memory_order_relaxed)}; }
void TrackingAllocator::reset_mark() {
  mark_bytes.store(current().count, std::memory_order_relaxed);
}

}  // namespace stagecraft
