// For tests that run the programs as users do.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

namespace stagecraft {

inline const std::string kConfigs = STAGECRAFT_SOURCE_DIR "/configs/";

// Exit code of a shell command; -1 when a signal ended it.
inline int shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace stagecraft
