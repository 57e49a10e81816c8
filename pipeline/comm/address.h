// Where a rank listens and how another one reaches it. The only code that knows the kind of socket.
#pragma once

#include <string>

#include "partitioner/base/descriptor.h"

namespace stagecraft {

// A Unix-domain socket in the run's private folder.
struct RankAddress {
  std::string path;
};

// Throws CommError (8) if the path is longer than a socket address holds (107 bytes).
RankAddress rank_address(const std::string& folder, int rank);

// Creates a fresh folder that only this user may enter, under $XDG_RUNTIME_DIR, $TMPDIR or /tmp,
// whichever is first to exist and short enough. Throws InputError (7).
std::string make_run_folder();

// Non-blocking listening socket, not inherited by programs that are started. Throws CommError (8).
Descriptor listen_at(const RankAddress& address, int rank);

// A connected non-blocking socket; empty if nobody listens there yet. Throws CommError (8) on what
// waiting does not mend.
Descriptor try_connect(const RankAddress& address, int peer);

// The next connection of a listening socket; empty if there is none.
Descriptor try_accept(const Descriptor& listener);

}  // namespace stagecraft
