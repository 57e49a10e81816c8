// One message on its way through a socket: what is left of header, payload and trailer, and its
// checksum so far. Used by the I/O thread alone, but for the fields that say otherwise.
#pragma once

#include <xxhash.h>

#include <memory>

#include "pipeline/comm/byte_cursor.h"
#include "pipeline/comm/communicator.h"
#include "pipeline/comm/wire.h"

namespace stagecraft {

class Checksum {
 public:
  Checksum() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
  void update(const iovec& piece) {
    XXH3_64bits_update(state_.get(), piece.iov_base, piece.iov_len);
  }
  uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

enum class Progress { kBlocked, kMoved, kDone, kClosed, kCorrupt };

struct SocketTransfer {
  bool is_send = false;
  int peer = 0;
  MessageTag tag;
  std::shared_ptr<void> keep_alive;  // the waiting thread's
  bool done = false;                 // guarded by the communicator's mutex
  TransferSpan span;                 // complete when it is done

  ByteCursor payload;
  HeaderBytes header{};  // of a send
  size_t header_moved = 0;
  TrailerBytes trailer{};
  size_t trailer_moved = 0;
  uint64_t hashed = 0;  // payload bytes that `checksum` covers
  Checksum checksum;

  // Moves at most one window in the direction of the transfer. kMoved: there may be more to do at
  // once. kBlocked: poll first. kClosed: the peer is gone. kCorrupt: the checksum differs.
  Progress push(int fd);
  Progress pull(int fd);  // after the header was read
};

}  // namespace stagecraft
