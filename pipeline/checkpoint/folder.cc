#include "pipeline/checkpoint/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <system_error>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/sha256.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_", kPartial = ".partial", kRemoved = ".removed",
                           kAside = ".old";

[[noreturn]] void fail_at(const fs::path& path, std::string_view action,
                          const std::error_code& why) {
  throw InputError(ExitCode::kIo,
                   fmt::format("{}: cannot {}: {}", path.string(), action, why.message()));
}

void move_to(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::rename(from, to, failed);
  if (failed) fail_at(from, fmt::format("rename to {}", to.filename().string()), failed);
}

void remove_whole(const fs::path& folder) {
  std::error_code failed;
  fs::remove_all(folder, failed);
  if (failed) fail_at(folder, "remove", failed);
}

std::vector<fs::path> entries_of(const std::string& folder) {
  std::error_code failed;
  std::vector<fs::path> entries;
  auto entry = fs::directory_iterator(folder, failed);
  for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    entries.push_back(entry->path());
  }
  if (failed) fail_at(folder, "list", failed);
  return entries;
}

// -1: the name of something else.
int64_t steps_of_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t steps = -1;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), steps);
  return steps >= 0 && checkpoint_name(steps) == name ? steps : -1;
}

[[noreturn]] void fail_damaged_checkpoint(const fs::path& path, std::string_view what) {
  throw InputError(ExitCode::kNoCheckpoint, fmt::format("{}: {}", path.string(), what));
}

// Links and pipes are refused before they are opened.
void require_regular(const fs::path& path) {
  std::error_code failed;
  const fs::file_status status = fs::symlink_status(path, failed);
  if (!fs::exists(status)) fail_damaged_checkpoint(path, "is missing");
  if (!fs::is_regular_file(status)) fail_damaged_checkpoint(path, "is no regular file");
}

void verify_file(const std::string& folder, const CheckpointFile& expected) {
  const fs::path path = fs::path(folder) / expected.name;
  require_regular(path);
  std::error_code failed;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, failed));
  if (failed) fail_at(path, "ask for the size", failed);
  if (bytes != expected.bytes) {
    fail_damaged_checkpoint(path,
                            fmt::format("has {} bytes, {} were written", bytes, expected.bytes));
  }
  if (sha256_hex_of_file(path.string()) != expected.sha256) {
    fail_damaged_checkpoint(path, "does not have the SHA-256 that the manifest gives: damaged");
  }
}

}  // namespace

std::string checkpoints_folder(const std::string& out) { return out + "/checkpoints"; }

std::string checkpoint_name(int64_t steps) { return fmt::format("{}{:08}", kPrefix, steps); }

std::string partial_checkpoint_name(int64_t steps) {
  return fmt::format(".{}{}", checkpoint_name(steps), kPartial);
}

std::vector<FoundCheckpoint> list_checkpoints(const std::string& root) {
  std::vector<FoundCheckpoint> found;
  std::error_code absent;
  if (!fs::exists(root, absent)) return found;
  for (const fs::path& entry : entries_of(root)) {
    const int64_t steps = steps_of_name(entry.filename().string());
    if (steps >= 0) found.push_back({.steps = steps, .folder = entry.string()});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.steps > b.steps; });
  return found;
}

CheckpointManifest read_checkpoint_manifest(const std::string& folder) {
  std::error_code absent;
  if (!fs::is_directory(folder, absent)) fail_damaged_checkpoint(folder, "is no folder");
  const std::string path = folder + "/" + kManifestName;
  require_regular(path);
  return parse_manifest(read_file(path, kMaxManifestBytes, ExitCode::kNoCheckpoint), path);
}

CheckpointManifest verify_checkpoint(const std::string& folder) {
  const CheckpointManifest manifest = read_checkpoint_manifest(folder);
  std::set<std::string> known{kManifestName};
  for (const CheckpointFile& file : manifest.files) {
    verify_file(folder, file);
    known.insert(file.name);
  }
  for (const fs::path& entry : entries_of(folder)) {
    if (!known.contains(entry.filename().string())) {
      fail_damaged_checkpoint(entry, "is not in the manifest; move it elsewhere");
    }
  }
  return manifest;
}

void make_checkpoints_folder(const std::string& root) {
  std::error_code failed;
  fs::create_directories(root, failed);
  if (failed) fail_at(root, "make the folder", failed);
  sync_folder(fs::path(root).parent_path().string());
}

void prepare_checkpoints(const std::string& root) {
  make_checkpoints_folder(root);
  for (const fs::path& entry : entries_of(root)) {
    const std::string name = entry.filename().string();
    if (name.starts_with(fmt::format(".{}", kPrefix)) &&
        (name.ends_with(kPartial) || name.ends_with(kRemoved))) {
      remove_whole(entry);
    }
  }
}

std::string make_partial_checkpoint(const std::string& root, int64_t steps) {
  const std::string folder = root + "/" + partial_checkpoint_name(steps);
  std::error_code failed;
  fs::create_directory(folder, failed);
  if (failed) fail_at(folder, "make the folder", failed);
  return folder;
}

void commit_checkpoint(const std::string& root, const CheckpointManifest& manifest) {
  const std::string folder = make_partial_checkpoint(root, manifest.steps);
  write_file_atomically(folder + "/" + kManifestName, manifest_text(manifest));
  move_to(folder, fs::path(root) / checkpoint_name(manifest.steps));
  sync_folder(root);
}

void remove_old_checkpoints(const std::string& root, const KeepRule& keep) {
  check(keep.last >= 1, "at least one checkpoint is kept");
  const auto found = list_checkpoints(root);
  for (size_t i = static_cast<size_t>(keep.last); i < found.size(); ++i) {
    if (keep.every > 0 && found[i].steps % keep.every == 0) continue;
    // A name that nobody takes for a checkpoint, before the first of its files goes.
    const fs::path going =
        fs::path(root) / fmt::format(".{}{}", checkpoint_name(found[i].steps), kRemoved);
    move_to(found[i].folder, going);
    remove_whole(going);
  }
}

void set_checkpoint_aside(const FoundCheckpoint& checkpoint) {
  const std::string aside = checkpoint.folder + std::string(kAside);
  remove_whole(aside);
  move_to(checkpoint.folder, aside);
}

}  // namespace stagecraft
