// Folders that Python makes once for all tests that read them.
//
// They lie in the build tree under a key of what they can depend on, so that none outlives a
// change: all our scripts (whichever imports which), the model files, the installed packages.
// Processes that want a folder at the same time wait for the first.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "partitioner/base/descriptor.h"
#include "partitioner/base/sha256.h"
#include "tests/support/programs.h"

namespace stagecraft {

inline std::string key_of_what_is_made() {
  namespace fs = std::filesystem;
  std::string parts =
      must_run("'" STAGECRAFT_PYTHON
               "' -c 'import sys; from importlib.metadata import distributions;"
               " print(sys.version, sorted((d.name, d.version) for d in distributions()))'");
  std::set<fs::path> files;
  for (const char* folder : {"/tests/python", "/tools", "/configs/models"}) {
    for (const auto& entry : fs::directory_iterator(STAGECRAFT_SOURCE_DIR + std::string(folder))) {
      const fs::path kind = entry.path().extension();
      if (kind == ".py" || kind == ".yaml") files.insert(entry.path());
    }
  }
  for (const fs::path& file : files) {
    parts += file.filename().string() + sha256_hex_of_file(file.string());
  }
  return sha256_hex(parts).substr(0, 16);
}

// The folder `name`, made if need be: `make` fills the empty folder that it is given, or throws and
// is asked again by whoever comes next. Blocks while another process makes it.
inline std::string made_once(const std::string& name,
                             const std::function<void(const std::string& folder)>& make) {
  namespace fs = std::filesystem;
  const fs::path parent = STAGECRAFT_BIN_DIR "/../" + name;
  const fs::path folder = parent / key_of_what_is_made();
  fs::create_directories(parent);
  const Descriptor lock(::open((parent / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX) != 0) {
    throw std::runtime_error(fmt::format("cannot lock {}/lock", parent.string()));
  }
  if (!fs::exists(folder)) {
    for (const auto& old : fs::directory_iterator(parent)) {
      if (old.is_directory()) fs::remove_all(old);
    }
    const fs::path partial = folder.string() + ".partial";
    fs::create_directory(partial);
    make(partial.string());
    fs::rename(partial, folder);
  }
  return folder.string();
}

}  // namespace stagecraft
