// Faults of a data set, collected so that a person sees them at once: the first of them, so that a
// file of nothing but faults costs little.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace stagecraft {

class DataFaults {
 public:
  static constexpr size_t kMostFaults = 1000;

  // `file` is the file that a person has to look at, normally DIR/prompt.json; `line` counts
  // from 1.
  explicit DataFaults(std::string file = {}) : file_(std::move(file)) {}
  void add(int64_t line, const std::string& message);
  bool empty() const { return by_line_.empty(); }
  size_t size() const { return by_line_.size(); }  // at most kMostFaults
  // One line for each fault, `file:line: message`, in order of lines; the first kMostFaults and how
  // many more were added.
  std::string text() const;
  // Throws InputError(kDataInvalid) with text() unless there is none.
  void throw_if_any() const;

 private:
  std::string file_;
  std::multimap<int64_t, std::string> by_line_;
  int64_t more_ = 0;  // behind those
};

}  // namespace stagecraft
