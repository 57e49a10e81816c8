#include "pipeline/checkpoint/part_writer.h"

#include <chrono>
#include <utility>

#include "partitioner/base/error.h"
#include "pipeline/checkpoint/folder.h"

namespace stagecraft {

PartWriter::~PartWriter() { cancelled_.store(true); }  // the future waits for its thread

void PartWriter::start(std::string root, int64_t steps, const std::vector<StoredBlock>& blocks) {
  check(!under_way(), "a checkpoint is begun while another one is written");
  count_.store(0);
  copies_.resize(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) copies_[i].take(blocks[i]);
  const auto write = [this, root = std::move(root), steps] {
    const std::string folder = make_partial_checkpoint(root, steps);
    std::vector<CheckpointFile> files;
    for (BlockCopy& copy : copies_) {
      if (cancelled_.load()) break;
      files.push_back(write_block_file(folder, copy.state().file, copy.state().tensors));
      copy.release();
      count_.fetch_add(1);
    }
    return files;
  };
  written_ = std::async(std::launch::async, write).share();  // looked at more than once
}

bool PartWriter::done() {
  if (!under_way()) return false;
  if (written_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  try {
    written_.get();  // throws what the thread threw
  } catch (...) {
    written_ = {};
    throw;
  }
  return true;
}

std::vector<CheckpointFile> PartWriter::wait(const std::function<void()>& on_progress) {
  check(under_way(), "no checkpoint is being written");
  constexpr std::chrono::milliseconds kLook(50);
  int64_t seen = 0;
  while (written_.wait_for(kLook) != std::future_status::ready) {
    const int64_t now = count_.load();
    if (now != seen && on_progress) on_progress();
    seen = now;
  }
  std::vector<CheckpointFile> files = written_.get();
  written_ = {};
  return files;
}

}  // namespace stagecraft
