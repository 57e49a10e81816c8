// Where a rank is, told through a page of shared memory that outlives it: the launcher reads it
// after a kill -9.
//
// The rank owns the writing side and writes from any thread; each call is a few stores and costs
// some tens of nanoseconds. The launcher only reads (except the cookie, before the rank starts).
// Nothing here blocks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "partitioner/base/descriptor.h"
#include "partitioner/base/error.h"
#include "pipeline/comm/wire.h"

namespace stagecraft {

enum class Section : int32_t {
  kStart,
  kConnect,
  kLoad,
  kForward,
  kBackward,
  kSend,
  kReceive,
  kOptimizer,
  kVote,
  kSave,
  kFinish,
};
// "start-up", "connecting", "loading", "forward", "backward", "send", "receive", "optimizer",
// "vote", "saving", "finish".
std::string_view section_name(Section section);
// Whether a rank that stays in this section waits for another one. Saving counts: all wait for
// rank 0, which writes, and it waits for their tensors.
bool waits_for_others(Section section);

// What the page says at one moment.
struct ProgressSnapshot {
  int64_t step = -1;
  Section section = Section::kStart;
  int32_t micro_batch = -1;
  int64_t action = -1;       // index in the rank's action list
  std::string operation;     // its short name, "B2.1"; empty if there was none yet
  uint64_t beats = 0;        // grows with every call: unchanged means no progress
  int64_t heartbeat_ns = 0;  // CLOCK_MONOTONIC of the last call
  bool goodbye = false;      // the rank left after the run's last barrier
  bool has_error = false;
  ExitCode error_code = ExitCode::kOk;
  bool secondary = false;  // it failed because another rank is gone
  std::string error_text;
};

class ProgressPage {
 public:
  // A page of its own that nobody else reads: for a rank without a launcher.
  ProgressPage();
  // Maps the page behind `fd`, which may be closed afterwards. Throws InputError (7).
  explicit ProgressPage(int fd);
  ~ProgressPage();
  ProgressPage(ProgressPage&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  ProgressPage& operator=(ProgressPage&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }

  // An empty page in anonymous memory, to be inherited. Throws InputError (7).
  static Descriptor make_memory();

  void set_section(Section section, int64_t step);
  // `operation` is kept to 23 bytes.
  void set_action(int64_t index, std::string_view operation, int32_t micro_batch);
  // Long work without actions (loading, encoding) says that it goes on.
  void beat();
  // The first error stays; the text is kept to 256 KiB, cut at a line's end with "... and more".
  // `secondary`: caught a PeerLostError.
  void set_error(ExitCode code, std::string_view text, bool secondary);
  // After the run's last barrier: from here on an exit is no death.
  void set_goodbye();

  ProgressSnapshot read() const;

  // The secret of the run, written by the launcher before the rank starts.
  void set_cookie(const Cookie& cookie);
  Cookie cookie() const;

  struct Data;

 private:
  Data* data_ = nullptr;
};

}  // namespace stagecraft
