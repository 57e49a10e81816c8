// For tests that run programs as users do, and read what they leave behind.
//
// All functions block until the program has ended.
#pragma once

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "partitioner/base/sha256.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {

inline const std::string kConfigs = STAGECRAFT_SOURCE_DIR "/configs/";

// Content of a file, also of one in /proc. Throws when there is none: two missing files must not
// pass for equal.
inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Exit code of a shell command; -1 when a signal ended it.
inline int shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct ProgramEnd {
  int code = -1;
  std::string out, err;
};

// Exit code of a shell command, and all that it printed.
inline ProgramEnd run_program(const std::string& command) {
  const TempFolder folder;
  const std::string out = folder.file("out"), err = folder.file("err");
  const int code = shell(fmt::format("{{ {}\n}} >{} 2>{}", command, out, err));
  return {.code = code, .out = text_of(out), .err = text_of(err)};
}

// Standard output of a shell command; throws, with all that it printed, when it fails.
inline std::string must_run(const std::string& command) {
  const ProgramEnd end = run_program(command);
  if (end.code != 0) {
    throw std::runtime_error(
        fmt::format("exit code {}: {}\n{}{}", end.code, command, end.out, end.err));
  }
  return end.out;
}

// What must not depend on how a training in folder `out` was split: losses and norms of every
// step, without times and memory, and the hash of ControlNet's trained weights.
inline std::string numbers_of(const std::string& out) {
  std::istringstream lines(text_of(out + "/metrics.jsonl"));
  std::string numbers;
  for (std::string line; std::getline(lines, line);) {
    numbers += line.substr(0, line.find(",\"seconds\"")) + '\n';
  }
  return numbers;
}
inline std::string weights_of(const std::string& out) {
  return sha256_hex_of_file(out + "/controlnet/diffusion_pytorch_model.safetensors");
}

}  // namespace stagecraft
