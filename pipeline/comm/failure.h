// The first error of a communicator, kept as a value so that every later call can throw it again.
#pragma once

#include <string>

#include "partitioner/base/error.h"
#include "pipeline/comm/communicator.h"

namespace stagecraft {

struct CommFailure {
  ExitCode code = ExitCode::kRankDied;
  int peer = -1;           // the rank it is about, -1 if none
  bool peer_lost = false;  // the cause lies with the peer
  std::string text;

  // `rank` is the one that throws: for itself it is never a lost peer.
  [[noreturn]] void raise(int rank) const {
    if (peer_lost && peer != rank) throw PeerLostError(peer, text);
    throw CommError(code, peer, text);
  }
};

}  // namespace stagecraft
