// Starts the ranks of one host, watches them until the last has ended, and says which one failed
// first.
//
// The launcher is the parent of the ranks and the only one who judges: a rank that loses a peer
// says so in its progress page and is not blamed. Two seconds after the first death nobody is left.
// If the launcher itself is killed, the kernel kills the ranks.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "partitioner/base/error.h"

namespace stagecraft {

struct LaunchOptions {
  std::vector<std::string> command;  // of each rank; the first is the program's path
  int ranks = 1;
  std::vector<std::string> labels;  // by rank, "stage 2"; may be empty
  // Added for each rank, beside STAGECRAFT_*, OMP_WAIT_POLICY=PASSIVE and OMP_NUM_THREADS; these
  // win.
  std::vector<std::pair<std::string, std::string>> environment;
  int threads_per_rank = 1;
  std::chrono::milliseconds stall_limit{300'000};  // without any progress of a rank
  // Signals within this time after the first one are the same request: a terminal and a wrapper
  // (timeout, npm, torchrun) both deliver Ctrl-C.
  std::chrono::milliseconds same_request{1000};
  // From the first SIGINT or SIGTERM to the end of the run.
  std::chrono::milliseconds grace_limit{120'000};
  std::chrono::milliseconds culprit_wait{300};  // for the cause, when a rank has only lost its peer
  std::chrono::milliseconds terminate_wait{500};  // from SIGTERM to SIGKILL, after a failure
};

struct LaunchResult {
  ExitCode code = ExitCode::kOk;
  int culprit = -1;    // the rank that failed first, -1 if none did
  std::string reason;  // one line; empty when all went well
  // 130 or 143 if SIGINT, SIGTERM or SIGHUP came, also when that was too late to change anything
  // and `code` is kOk: a caller with more to do leaves.
  ExitCode asked_to_stop = ExitCode::kOk;
};

// Blocks until every rank has ended; the run's folder is gone then. Call it from a thread that
// lives as long as the run, in a process without other threads: it blocks SIGINT, SIGTERM, SIGHUP,
// SIGUSR1 and SIGCHLD meanwhile and acts on them: the first SIGINT or SIGTERM is passed on to the
// ranks as SIGTERM, which let their step end, save and leave; a later SIGINT, or the grace limit,
// kills. SIGUSR1 is passed on, to ranks that ignore it until they handle it. Warnings go to stderr,
// as do the ranks' own lines, "[rank 2] " in front. Throws InputError (7) if the folder cannot be
// made; everything later is in the result, with code
//   that of the first rank to fail, if it is one of ExitCode · 8 a rank could not be started · 9
//   killed by a signal, left early, unknown code · 10 no progress · 130, 143 stopped by SIGINT,
//   SIGTERM.
LaunchResult launch(const LaunchOptions& options);

// The path of this program, for `command`.
std::string own_program();

}  // namespace stagecraft
