// TempFolder with paths as strings, folders on the way made.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temp_folder.h"

namespace stagecraft {

class ScratchFolder : public TempFolder {
 public:
  std::string path() const { return TempFolder::path().string(); }
  std::string operator/(const std::string& name) const {
    std::filesystem::create_directories(std::filesystem::path(file(name)).parent_path());
    return file(name);
  }
};

inline std::string file_content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace stagecraft
