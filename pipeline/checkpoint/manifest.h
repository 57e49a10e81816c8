// manifest.json of a checkpoint: what it holds, what a run must have in common with it, and the
// SHA-256 of every file and of itself.
//
// Plain values and pure functions; any thread. The text is ASCII where the values are: line 1 holds
// the digest of all bytes behind that line, so that any change of the file is found before it is
// parsed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stagecraft {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr int64_t kMaxManifestBytes = int64_t{1} << 20;

using NamedValues = std::map<std::string, std::string>;

struct CheckpointFile {
  std::string name;  // letters, digits, '_', '-' and '.', the first no '.': never a path
  int64_t bytes = 0;
  std::string sha256;
  bool operator==(const CheckpointFile&) const = default;
};

struct CheckpointManifest {
  int64_t steps = 0;                  // done: training goes on with this one
  NamedValues same;                   // equal in a run that goes on, or its bits would be others
  NamedValues settings;               // may differ
  std::vector<CheckpointFile> files;  // ascending names, each once
  bool operator==(const CheckpointManifest&) const = default;
};

std::string manifest_text(const CheckpointManifest& manifest);

// `where` starts messages. Throws InputError: kNoCheckpoint for damage (a text that was not written
// by `manifest_text`), kPlanMismatch for one of a newer version.
CheckpointManifest parse_manifest(std::string_view text, const std::string& where);

// The digest in line 1: stands for all that the checkpoint holds.
std::string manifest_digest(const CheckpointManifest& manifest);

}  // namespace stagecraft
