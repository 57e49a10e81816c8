// What every fuzz target stands on: how it is registered, and what an error must look like.
//
// A target is a function of some bytes that calls a parser and returns when the bytes are accepted
// or refused as documented; anything else escapes as an exception, a signal or a sanitizer's
// report. In a fuzzer's program it is LLVMFuzzerTestOneInput; the test program holds all of them
// and replays the corpus.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "partitioner/base/error.h"
#include "partitioner/base/utf8.h"
#include "tests/support/temp_folder.h"

namespace stagecraft::fuzz {

using Target = void (*)(std::string_view input);

// The targets of the test program by name.
inline std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

// Never caught by a target: what was promised does not hold.
class BrokenPromise : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool holds, const std::string& promise) {
  if (!holds) throw BrokenPromise(promise);
}

// A refusal with one of the documented codes, and lines that a person can read.
inline void accept(const Error& error, std::initializer_list<ExitCode> codes) {
  constexpr size_t kLongestLine = 1024, kMostLines = 1001;
  const std::string_view text = error.what();
  const auto refuse = [&](const char* why) {
    throw BrokenPromise(std::string(why) + ": " + std::string(text.substr(0, 2000)));
  };
  if (std::find(codes.begin(), codes.end(), error.code()) == codes.end()) refuse("exit code");
  if (first_invalid_utf8(text)) refuse("message is not UTF-8");
  size_t lines = 0;
  for (size_t at = 0; at <= text.size(); ++lines) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.empty()) refuse("empty line in a message");
    if (line.size() > kLongestLine) refuse("line too long in a message");
    for (const char c : line) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) refuse("control character");
    }
    at = end + 1;
  }
  if (lines > kMostLines) refuse("too many lines in a message");
}

// Larger inputs are only read: writing and reading them again is not part of what a file may cost.
inline constexpr size_t kMostReadBack = 64 << 10;

// The folder of this process for parsers that read files.
inline const TempFolder& folder() {
  static const TempFolder folder;
  return folder;
}

}  // namespace stagecraft::fuzz

// Behind the target `fuzz_<name>` in the file <name>.cc.
#ifdef STAGECRAFT_FUZZER
#define STAGECRAFT_FUZZ_TARGET(name)                                        \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    fuzz_##name({reinterpret_cast<const char*>(data), size});               \
    return 0;                                                               \
  }
#else
#define STAGECRAFT_FUZZ_TARGET(name)                                           \
  namespace {                                                                  \
  const bool registered_##name = targets().emplace(#name, fuzz_##name).second; \
  }
#endif
