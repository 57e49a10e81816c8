// The errors that end a program, each with the exit code it maps to.
//
// A message is one line a person can act on: where (file:line or rank, block), what (numbers),
// and one next step. Values; any thread.
#pragma once

#include <stdexcept>
#include <string>

namespace stagecraft {

// Exit codes of both programs. 0 is success; 1, 126-128 and signal numbers are never used.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 2,
  kConfigInvalid = 3,  // plan, model, cluster or training file
  kPlanMismatch = 4,   // plan does not match model, weights, checkpoint or world
  kDataInvalid = 5,
  kNoCheckpoint = 6,
  kIo = 7,
  kStartup = 8,  // start-up or rendezvous failure
  kRankDied = 9,
  kStall = 10,
  kNonFinite = 11,
  kOutputInUse = 12,
  kOutOfMemory = 13,  // or no feasible plan
  kInternal = 14,
  kInterrupted = 130,
  kTerminated = 143,
};

// Base of all of them; `what()` is the line, without a trailing newline.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// A file that people write is wrong: plan, model, cluster, training file (3), or does not match
// (4). May hold several lines, one per fault, each `file:line:column: message`.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message, ExitCode code = ExitCode::kConfigInvalid)
      : Error(code, message) {}
};

// Data (5), weights (4, 6) or files on disk (7) are wrong.
class InputError : public Error {
 public:
  InputError(ExitCode code, const std::string& message) : Error(code, message) {}
};

// Memory, devices or a plan that does not fit (13).
class ResourceError : public Error {
 public:
  explicit ResourceError(const std::string& message, ExitCode code = ExitCode::kOutOfMemory)
      : Error(code, message) {}
};

// A peer is gone (9), silent past the deadline (10) or never came (8).
class CommError : public Error {
 public:
  CommError(ExitCode code, int peer, const std::string& message)
      : Error(code, message), peer_(peer) {}
  int peer() const { return peer_; }

 private:
  int peer_;
};

// A broken invariant of ours (14). Checked in release builds too.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

// Throws InternalError with `what` unless `holds`.
inline void check(bool holds, const char* what) {
  if (!holds) throw InternalError(what);
}

}  // namespace stagecraft
