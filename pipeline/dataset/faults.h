// Faults of a data set, collected so that a person sees all of them at once.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace stagecraft {

class DataFaults {
 public:
  // `file` is the file that a person has to look at, normally DIR/prompt.json; `line` counts
  // from 1.
  explicit DataFaults(std::string file = {}) : file_(std::move(file)) {}
  void add(int64_t line, const std::string& message);
  bool empty() const { return by_line_.empty(); }
  // One line for each fault, `file:line: message`, in order of lines; the first 1000 and how many
  // more.
  std::string text() const;
  // Throws InputError(kDataInvalid) with text() unless there is none.
  void throw_if_any() const;

 private:
  std::string file_;
  std::multimap<int64_t, std::string> by_line_;
};

}  // namespace stagecraft
