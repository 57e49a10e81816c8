// Writes a rank's part of a checkpoint in a thread of its own.
//
// Used by one thread, which goes on training meanwhile. One save at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "pipeline/checkpoint/block_copy.h"
#include "pipeline/checkpoint/manifest.h"

namespace stagecraft {

class PartWriter {
 public:
  PartWriter() = default;
  ~PartWriter();  // gives up what is not written yet, after the file under way

  // Copies the blocks, which may change when it returns, and begins to write them into the folder
  // of the unfinished checkpoint `steps` under `root`. Requires that nothing is under way. Blocks
  // for the copy. Throws std::bad_alloc.
  void start(std::string root, int64_t steps, const std::vector<StoredBlock>& blocks);
  bool under_way() const { return written_.valid(); }
  // Whether all files are on the disk. Throws what the write threw (InputError(kIo), with file and
  // reason); nothing is under way then.
  bool done();
  // Blocks until they are, and ends the save; `on_progress` after each file, at most every 50 ms.
  // Throws as `done`.
  std::vector<CheckpointFile> wait(const std::function<void()>& on_progress = {});

 private:
  std::vector<BlockCopy> copies_;  // the thread's while a save is under way
  std::atomic<int64_t> count_{0};
  std::atomic<bool> cancelled_{false};
  // Last: it waits for the thread, which uses the others.
  std::shared_future<std::vector<CheckpointFile>> written_;
};

}  // namespace stagecraft
