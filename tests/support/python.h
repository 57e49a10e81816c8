// Runs a Python script of the tests with the project's own interpreter.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace stagecraft {

// `script`: below tests/. Fails the test with the script's output when it does not end well.
// Arguments and paths must not hold quotes. Output goes to `log`.
inline bool run_python(const std::string& script, const std::vector<std::string>& arguments,
                       const std::string& log) {
  std::string command =
      "OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 '" STAGECRAFT_PYTHON
      "' '" STAGECRAFT_SOURCE_DIR "/tests/";
  command += script + "'";
  for (const auto& argument : arguments) command += " '" + argument + "'";
  command += " > '" + log + "' 2>&1";
  const int status = std::system(command.c_str());
  const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!good) {
    std::ifstream file(log);
    ADD_FAILURE() << command << "\n" << std::string(std::istreambuf_iterator<char>(file), {});
  }
  return good;
}

}  // namespace stagecraft
