// A data set of pairs on disk, in the layout of fill50k (ControlNet's tutorial_dataset.py):
// DIR/prompt.json with one JSON object a line, keys `source` (the hint picture), `target` (the
// picture to learn) and `prompt` (its caption).
//
// Files are hostile: paths stay inside DIR (no "..", nothing absolute, no link that leads out), and
// only regular files are read. Plain values; any thread; functions block on the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/dataset/faults.h"

namespace stagecraft {

struct SampleFiles {
  int64_t line = 0;            // in prompt.json, from 1
  std::string source, target;  // relative to the folder, as written
  std::string caption;         // UTF-8, may be empty
};

struct Dataset {
  std::string folder;      // absolute, links resolved
  std::string index_path;  // prompt.json, as shown to people
  std::string index_hash;  // SHA-256 of prompt.json
  std::vector<SampleFiles> samples;
  DataFaults faults;  // of prompt.json; pictures are looked at by `fill_cache`
};

inline constexpr int64_t kMaxCaptionBytes = 16 * 1024;

// Reads prompt.json. A UTF-8 byte order mark, CRLF, blank lines and further keys are accepted.
// Faults of lines go to `faults` (their samples are left out); behind 1000 of them, or a line of
// more than 1 MiB, nothing is read. Throws InputError(kDataInvalid) when there is no such folder or
// file.
Dataset read_dataset(const std::string& folder);

// Throws InputError(kDataInvalid) with all faults, or when there are fewer samples than `batch`.
void require_valid(const Dataset& dataset, int64_t batch);

// What tells a changed file from an unchanged one without reading it.
struct FileStamp {
  int64_t size = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

struct DataFile {
  std::string path;  // absolute
  FileStamp stamp;
};

// Finds a file of the data set. Throws InputError(kDataInvalid) without a position: no such file,
// not a regular file, outside the folder.
DataFile find_data_file(const Dataset& dataset, const std::string& relative);

}  // namespace stagecraft
