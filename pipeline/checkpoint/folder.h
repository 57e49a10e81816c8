// The folder of checkpoints of a run: names, commit, rotation, verification.
//
//     checkpoints/step_00000100/           committed: complete, whatever happens
//     checkpoints/.step_00000200.partial/  being written; never valid, removed at the next start
//     checkpoints/.step_00000050.removed/  being deleted; the same
//     checkpoints/step_00000300.old/       set aside; never looked at again
//
// One process writes at a time (the caller holds a lock); any thread. All of it blocks on the disk;
// errors are InputError(kIo) naming file and reason, unless said otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/checkpoint/manifest.h"

namespace stagecraft {

std::string checkpoints_folder(const std::string& out);  // OUT/checkpoints
std::string checkpoint_name(int64_t steps);              // "step_00000100"
std::string partial_checkpoint_name(int64_t steps);      // ".step_00000100.partial"

struct FoundCheckpoint {
  int64_t steps = 0;   // as the name says
  std::string folder;  // path
};
// By name, newest first; not looked into. Empty when `root` is not there.
std::vector<FoundCheckpoint> list_checkpoints(const std::string& root);

// Reads the manifest and every byte of every file. Throws InputError(kNoCheckpoint), which names
// file and reason, when anything is missing, too much, no regular file, of another size or SHA-256;
// kPlanMismatch for another version of the format.
CheckpointManifest verify_checkpoint(const std::string& folder);
// The manifest alone.
CheckpointManifest read_checkpoint_manifest(const std::string& folder);

// Makes `root` if need be.
void make_checkpoints_folder(const std::string& root);
// And removes what a killed run left half written or half deleted.
void prepare_checkpoints(const std::string& root);

// Makes an unfinished checkpoint's folder, if it is not there, and returns its path.
std::string make_partial_checkpoint(const std::string& root, int64_t steps);
// Its files are on the disk: writes the manifest, flushes, and gives the folder its name. Only then
// is there a checkpoint.
void commit_checkpoint(const std::string& root, const CheckpointManifest& manifest);

struct KeepRule {
  int64_t last = 2;   // 1 or more
  int64_t every = 0;  // also those whose steps are a multiple of it; 0: none
};
void remove_old_checkpoints(const std::string& root, const KeepRule& keep);

// Renames to NAME.old; an earlier NAME.old goes.
void set_checkpoint_aside(const FoundCheckpoint& checkpoint);

}  // namespace stagecraft
