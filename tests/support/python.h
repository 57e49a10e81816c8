// Python scripts of the project, with its own interpreter.
#pragma once

#include <string>
#include <vector>

namespace stagecraft {

// The shell command that runs `script`, a path below the source folder. Arguments must not hold
// quotes.
inline std::string python_command(const std::string& script,
                                  const std::vector<std::string>& arguments) {
  std::string command =
      "OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 '" STAGECRAFT_PYTHON
      "' '" STAGECRAFT_SOURCE_DIR "/";
  command += script + "'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  return command;
}

}  // namespace stagecraft
