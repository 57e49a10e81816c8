#include "pipeline/train/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "partitioner/base/error.h"
#include "pipeline/checkpoint/folder.h"
#include "pipeline/train/checkpoint_state.h"
#include "pipeline/train/console.h"

namespace stagecraft {
namespace {

std::string encode_files(const std::vector<CheckpointFile>& files) {
  std::string text;
  for (const CheckpointFile& file : files) {
    text += fmt::format("{} {} {}\n", file.name, file.bytes, file.sha256);
  }
  return text;
}

std::vector<CheckpointFile> decode_files(const std::vector<std::string>& texts) {
  std::vector<CheckpointFile> files;
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    for (CheckpointFile file; lines >> file.name >> file.bytes >> file.sha256;) {
      files.push_back(file);
    }
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

void require_whole(const std::vector<CheckpointFile>& files, const BlockGraph& graph) {
  std::vector<std::string> names;
  for (const CheckpointFile& file : files) names.push_back(file.name);
  check(names == files_of_trained_blocks(graph),
        "the ranks' parts of a checkpoint are not its trained blocks, each once");
}

}  // namespace

Checkpointing::Checkpointing(const Job& job, const RankParameters& parameters,
                             CheckpointManifest common, LoopControl& control)
    : job_(job),
      parameters_(parameters),
      common_(std::move(common)),
      control_(control),
      root_(checkpoints_folder(job.options.out)) {
  std::error_code elsewhere;
  const std::string own = root_ + "/" + checkpoint_name(common_.steps);
  if (!job.checkpoint.empty() && std::filesystem::equivalent(job.checkpoint, own, elsewhere)) {
    saved_ = common_.steps;
  }
}

bool Checkpointing::part_written() {
  if (commit_.valid() && commit_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    settle_commit();
  }
  return writer_.done();
}

void Checkpointing::end_of_step(int64_t steps, bool all_written, bool goes_on, bool asked) {
  const auto start = Clock::now();
  const int64_t every = job_.options.save_every;
  const bool due = goes_on && (asked || (every > 0 && steps % every == 0));
  if (under_way_ != 0 && (all_written || due)) complete();
  if (due) {
    begin(steps);
    ++saves_in_training_;
  }
  held_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
}

void Checkpointing::finish(int64_t steps) {
  const bool wanted = job_.options.wants_checkpoints();
  if (!wanted && saves_in_training_ == 0) return;
  if (under_way_ != 0) complete();
  if (wanted && saved_ != steps) {
    begin(steps);
    complete();
  }
  control_.enter(Section::kSave);
  settle_commit();
  const double held = held_seconds_ / static_cast<double>(std::max<int64_t>(saves_in_training_, 1));
  double longest_held = 0;
  for (const double one : control_.gather_plain("seconds held up by checkpoints", held)) {
    longest_held = std::max(longest_held, one);
  }
  if (!control_.first_rank() || saves_ == 0) return;
  std::string text = fmt::format("checkpoints: {} written to {}, the longest in {:.2f} s", saves_,
                                 root_, longest_seconds_);
  if (saves_in_training_ > 0) {
    text += fmt::format("; each held training up for {:.3f} s", longest_held);
  }
  say(text + "\n");
}

void Checkpointing::begin(int64_t steps) {
  control_.enter(Section::kSave);
  begun_ = Clock::now();
  under_way_ = steps;
  if (!job_.options.wants_checkpoints()) make_checkpoints_folder(root_);  // asked for by a signal
  writer_.start(root_, steps, trained_state(job_.graph, parameters_));
}

// All ranks' parts are on the disk when the gather ends.
void Checkpointing::complete() {
  control_.enter(Section::kSave);
  const auto mine = writer_.wait([this] { control_.beat(); });
  const auto parts =
      control_.gather(fmt::format("files of checkpoint {}", under_way_), encode_files(mine));
  saved_ = std::exchange(under_way_, 0);
  ++saves_;
  if (!control_.first_rank()) return;
  settle_commit();
  CheckpointManifest manifest = common_;
  manifest.steps = saved_;
  manifest.files = decode_files(parts);
  require_whole(manifest.files, job_.graph);
  const KeepRule keep{.last = job_.options.keep_last, .every = job_.options.keep_every};
  commit_ = std::async(
      std::launch::async, [root = root_, manifest = std::move(manifest), keep, begun = begun_] {
        commit_checkpoint(root, manifest);
        const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
        remove_old_checkpoints(root, keep);
        return seconds;
      });
}

void Checkpointing::settle_commit() {
  if (commit_.valid()) longest_seconds_ = std::max(longest_seconds_, commit_.get());
}

}  // namespace stagecraft
