#include "pipeline/launch/progress_page.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>

namespace stagecraft {
namespace {

constexpr size_t kOperationWords = 3;
constexpr size_t kErrorBytes = size_t{256} * 1024;  // a data set's faults are many lines
enum ErrorState : uint32_t { kNone = 0, kWriting = 1, kComplete = 2 };

// Text of an operation in words that are stored whole. Two copies: the reader looks at the one that
// is not being written.
struct OperationText {
  std::array<std::atomic<uint64_t>, kOperationWords> words;
};

}  // namespace

// Zero bytes are a valid empty page.
struct ProgressPage::Data {
  Cookie cookie;
  std::atomic<int64_t> step_plus_1;
  std::atomic<int32_t> section;
  std::atomic<int32_t> micro_batch_plus_1;
  std::atomic<int64_t> action_plus_1;
  std::atomic<uint64_t> operations;  // written so far; the newest is in slot operations % 2
  std::array<OperationText, 2> operation;
  std::atomic<uint64_t> beats;
  std::atomic<int64_t> heartbeat_ns;
  std::atomic<uint32_t> goodbye;
  std::atomic<uint32_t> error_state;
  int32_t error_code;
  uint32_t error_secondary;
  char error_text[kErrorBytes];
};

namespace {

// Numbers are kept one higher, so that zero means none. A page may hold anything.
template <class Number>
Number less_one(const std::atomic<Number>& number) {
  const Number kept = number.load(std::memory_order_relaxed);
  return kept == std::numeric_limits<Number>::min() ? kept : kept - 1;
}

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

ProgressPage::Data* map_page(int fd, int flags) {
  void* memory = ::mmap(nullptr, sizeof(ProgressPage::Data), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) {
    throw InputError(ExitCode::kIo,
                     fmt::format("cannot map the progress page: {}", std::strerror(errno)));
  }
  return static_cast<ProgressPage::Data*>(memory);
}

}  // namespace

std::string_view section_name(Section section) {
  constexpr std::string_view kNames[] = {"start-up", "connecting", "loading", "forward",
                                         "backward", "send",       "receive", "optimizer",
                                         "vote",     "saving",     "finish"};
  const auto index = static_cast<size_t>(section);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

bool waits_for_others(Section section) {
  return section == Section::kConnect || section == Section::kSend ||
         section == Section::kReceive || section == Section::kVote || section == Section::kSave ||
         section == Section::kFinish;
}

ProgressPage::ProgressPage() : data_(map_page(-1, MAP_SHARED | MAP_ANONYMOUS)) {}

ProgressPage::ProgressPage(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0 || status.st_size < static_cast<off_t>(sizeof(Data))) {
    throw InputError(ExitCode::kIo, fmt::format("descriptor {} is no progress page", fd));
  }
  data_ = map_page(fd, MAP_SHARED);
}

ProgressPage::~ProgressPage() {
  if (data_ != nullptr) ::munmap(data_, sizeof(Data));
}

Descriptor ProgressPage::make_memory() {
  Descriptor fd(::memfd_create("stagecraft-progress", MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), sizeof(Data)) != 0) {
    throw InputError(ExitCode::kIo,
                     fmt::format("no memory for the progress page: {}", std::strerror(errno)));
  }
  return fd;
}

void ProgressPage::beat() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  data_->heartbeat_ns.store(std::chrono::nanoseconds(now).count(), std::memory_order_relaxed);
  data_->beats.fetch_add(1, std::memory_order_release);
}

void ProgressPage::set_section(Section section, int64_t step) {
  data_->section.store(static_cast<int32_t>(section), std::memory_order_relaxed);
  data_->step_plus_1.store(step + 1, std::memory_order_relaxed);
  beat();
}

void ProgressPage::set_action(int64_t index, std::string_view operation, int32_t micro_batch) {
  char text[kOperationWords * 8] = {};
  std::copy_n(operation.data(), std::min(operation.size(), sizeof text - 1), text);
  const uint64_t next = data_->operations.load(std::memory_order_relaxed) + 1;
  for (size_t i = 0; i < kOperationWords; ++i) {
    uint64_t word;
    std::memcpy(&word, text + 8 * i, sizeof word);
    data_->operation[next % 2].words[i].store(word, std::memory_order_relaxed);
  }
  data_->operations.store(next, std::memory_order_release);
  data_->action_plus_1.store(index + 1, std::memory_order_relaxed);
  data_->micro_batch_plus_1.store(micro_batch + 1, std::memory_order_relaxed);
  beat();
}

void ProgressPage::set_error(ExitCode code, std::string_view text, bool secondary) {
  uint32_t expected = kNone;
  if (!data_->error_state.compare_exchange_strong(expected, kWriting)) return;
  data_->error_code = static_cast<int32_t>(code);
  data_->error_secondary = secondary ? 1 : 0;
  constexpr std::string_view kMore = "\n... and more";
  size_t size = text.size();
  if (size >= kErrorBytes) {
    const size_t room = kErrorBytes - 1 - kMore.size();
    const size_t line_end = text.rfind('\n', room);
    size = line_end == std::string_view::npos ? room : line_end;
    std::copy_n(kMore.data(), kMore.size(), data_->error_text + size);
  }
  std::copy_n(text.data(), size, data_->error_text);
  if (size < text.size()) size += kMore.size();
  data_->error_text[size] = '\0';
  data_->error_state.store(kComplete, std::memory_order_release);
}

void ProgressPage::set_goodbye() { data_->goodbye.store(1, std::memory_order_release); }

ProgressSnapshot ProgressPage::read() const {
  ProgressSnapshot snapshot;
  snapshot.beats = data_->beats.load(std::memory_order_acquire);
  snapshot.heartbeat_ns = data_->heartbeat_ns.load(std::memory_order_relaxed);
  snapshot.step = less_one(data_->step_plus_1);
  snapshot.section = static_cast<Section>(data_->section.load(std::memory_order_relaxed));
  snapshot.micro_batch = less_one(data_->micro_batch_plus_1);
  snapshot.action = less_one(data_->action_plus_1);
  char text[kOperationWords * 8 + 1] = {};
  const uint64_t slot = data_->operations.load(std::memory_order_acquire) % 2;
  for (size_t i = 0; i < kOperationWords; ++i) {
    const uint64_t word = data_->operation[slot].words[i].load(std::memory_order_relaxed);
    std::memcpy(text + 8 * i, &word, sizeof word);
  }
  snapshot.operation = text;
  snapshot.goodbye = data_->goodbye.load(std::memory_order_acquire) != 0;
  if (data_->error_state.load(std::memory_order_acquire) == kComplete) {
    snapshot.has_error = true;
    snapshot.error_code = static_cast<ExitCode>(data_->error_code);
    snapshot.secondary = data_->error_secondary != 0;
    snapshot.error_text.assign(data_->error_text, ::strnlen(data_->error_text, kErrorBytes));
  }
  return snapshot;
}

void ProgressPage::set_cookie(const Cookie& cookie) { data_->cookie = cookie; }
Cookie ProgressPage::cookie() const { return data_->cookie; }

}  // namespace stagecraft
