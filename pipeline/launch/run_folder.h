// The folder of one run's sockets: private, unique, gone with the run.
#pragma once

#include <string>

#include "partitioner/base/descriptor.h"

namespace stagecraft {

class RunFolder {
 public:
  // Makes the folder, and removes those of runs whose launcher was killed: their lock is free.
  // Throws InputError (7).
  RunFolder();
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor lock_;  // held while the run lives
};

}  // namespace stagecraft
