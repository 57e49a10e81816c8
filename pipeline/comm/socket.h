// Ranks that are processes of one host: the transport where there is no GPU.
//
// One connection for each pair of ranks and one I/O thread per rank; a control connection from each
// rank to rank 0. Nothing is buffered here: a payload goes from the sender's pieces to the socket
// and from the socket to the receiver's pieces, and is left in the socket until its receive is
// posted, which holds the sender back. (What the kernel buffers, a few hundred KiB per pair, may be
// "sent" before the receive is posted.)
//
// A peer that closes its connection without goodbye is dead: every pending and later call throws
// PeerLostError at once, whichever peer it is about. Deadlines use the monotonic clock and count
// from the last byte that moved between the two ranks.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "pipeline/comm/communicator.h"
#include "pipeline/comm/wire.h"

namespace stagecraft {

struct SocketWorldOptions {
  std::string folder;  // private to the run (0700), the same for all ranks; see make_run_folder
  int rank = 0;
  int size = 1;
  Cookie cookie{};  // the same for all ranks, secret; connections without it are dropped
  std::chrono::milliseconds startup_deadline{60'000};
  std::chrono::milliseconds deadline{300'000};  // of each wait and each collective
};

struct SocketWorld {
  // Destroying it says goodbye to the peers if no transfer is unfinished; do so after a final
  // barrier.
  std::unique_ptr<Communicator> communicator;
  // The last call of a run should be a barrier on it ("goodbye"), so that nobody leaves while
  // others wait.
  std::unique_ptr<ControlChannel> control;
};

// 128 random bits from the system.
Cookie make_cookie();

// Blocks until every rank is connected with every other. The socket's file is gone afterwards.
// Throws CommError (8) naming the ranks that did not come in time.
SocketWorld connect_socket_world(const SocketWorldOptions& options);

}  // namespace stagecraft
