// One started rank: its process, its page, its lines on stderr.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "partitioner/base/descriptor.h"
#include "pipeline/launch/progress_page.h"

namespace stagecraft {

// Passes a rank's lines on to stderr, each whole and with "[rank 2] " in front.
class LineForwarder {
 public:
  LineForwarder() = default;
  LineForwarder(int rank, Descriptor source);
  int fd() const { return source_.get(); }  // -1 at the end of the stream
  void forward_available();                 // does not wait for the rank
  void finish();                            // what is there, and a last line without an end

 private:
  void write_lines(bool all);

  std::string prefix_;
  Descriptor source_;
  std::string pending_;
};

class RankProcess {
 public:
  // Starts `command` in a process group of its own that dies with the calling thread, stdin from
  // /dev/null, stdout shared, stderr through the forwarder, and `variables` ("NAME=value") added to
  // the environment or replacing it there. Throws CommError (8) if that fails, naming the rank and
  // why.
  RankProcess(int rank, const std::vector<std::string>& command, std::vector<std::string> variables,
              const Cookie& cookie);
  ~RankProcess();  // kills and reaps what still runs
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool alive() const { return pid_ > 0; }
  void signal_group(int signal) const;  // the rank and what it started

  enum class Change { kNone, kStopped, kContinued, kEnded };
  // Does not block. After kEnded the rank is reaped, its whole group killed, and `exit_code` or
  // `ended_by` is set.
  Change poll_change();
  int exit_code() const { return exit_code_; }
  int ended_by() const { return ended_by_; }

  const ProgressPage& page() const { return page_; }
  LineForwarder& lines() { return lines_; }

 private:
  int rank_;
  Descriptor memory_;
  ProgressPage page_;
  LineForwarder lines_;
  pid_t pid_ = -1;
  int exit_code_ = 0;
  int ended_by_ = 0;
};

}  // namespace stagecraft
