#include "pipeline/train/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/strict_json.h"
#include "pipeline/checkpoint/folder.h"
#include "pipeline/train/checkpoint_state.h"
#include "pipeline/train/console.h"
#include "pipeline/train/trained_weights.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

// "batch 4 (here 2), seed 1 (here 2)"
std::string differences(const NamedValues& checkpoint, const NamedValues& here) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& theirs,
                       const std::string& ours) {
    text += fmt::format("{}{} {} (here {})", text.empty() ? "" : ", ", printable(name),
                        printable(theirs), printable(ours));
  };
  for (const auto& [name, value] : checkpoint) {
    const auto ours = here.find(name);
    if (ours == here.end()) {
      add(name, value, "none");
    } else if (ours->second != value) {
      add(name, value, ours->second);
    }
  }
  for (const auto& [name, value] : here) {
    if (!checkpoint.contains(name)) add(name, "none", value);
  }
  return text;
}

ResumePoint accept_checkpoint(const Job& job, const CheckpointManifest& found,
                              const CheckpointManifest& run, const std::string& folder) {
  require_same_run(found, run, job, folder);
  const std::string changed = differences(found.settings, run.settings);
  if (!changed.empty()) say(fmt::format("note: {}: saved with {}\n", folder, changed));
  say(fmt::format("resume: {}, {} of {} steps done\n", folder, found.steps, job.options.steps));
  return {.folder = folder, .steps = found.steps};
}

ResumePoint newest_whole(const Job& job, const CheckpointManifest& run) {
  const std::string root = checkpoints_folder(job.options.out);
  const auto found = list_checkpoints(root);
  if (found.empty()) {
    say(fmt::format("resume: no checkpoint in {}; training starts from the beginning\n", root));
    return {};
  }
  std::string damaged;
  for (const FoundCheckpoint& checkpoint : found) {
    CheckpointManifest manifest;
    try {
      manifest = verify_checkpoint(checkpoint.folder);
    } catch (const InputError& error) {
      if (error.code() != ExitCode::kNoCheckpoint && error.code() != ExitCode::kIo) throw;
      fmt::print(stderr, "warning: checkpoint skipped: {}\n", error.what());
      damaged += fmt::format("{}{}", damaged.empty() ? "" : "; ", error.what());
      continue;
    }
    return accept_checkpoint(job, manifest, run, checkpoint.folder);
  }
  throw InputError(ExitCode::kNoCheckpoint,
                   fmt::format("--resume auto: none of the {} checkpoints is whole: {}; move {} "
                               "elsewhere to start from the beginning",
                               found.size(), damaged, root));
}

}  // namespace

CheckpointManifest describe_run(const Job& job, const WeightSource& weights,
                                const std::string& data_identity) {
  const TrainOptions& options = job.options;
  const TrainConfig& train = job.plan.train;
  const OptimizerConfig& optimizer = options.optimizer;
  const auto number = [](double value) { return fmt::format("{}", value); };
  CheckpointManifest run;
  run.same = {{"model", printable(job.graph.model)},
              {"model graph", graph_hash(job.graph)},
              {"precision", train.precision},
              {"batch", std::to_string(train.batch)},
              {"micro_batch", std::to_string(train.micro_batch)},
              {"seed", std::to_string(options.seed)},
              {"caption dropout", number(options.caption_dropout)},
              {"data", data_identity},
              {"unet weights", weights.identity("unet")},
              {"sum_groups", "1"}};
  for (const std::string& part : trained_parts(job.graph)) {
    run.same[part + " weights"] = weights.identity(part);
  }
  run.settings = {{"learning rate", number(optimizer.learning_rate)},
                  {"beta1", number(optimizer.beta1)},
                  {"beta2", number(optimizer.beta2)},
                  {"eps", number(optimizer.eps)},
                  {"weight decay", number(optimizer.weight_decay)},
                  {"warm-up steps", std::to_string(optimizer.warmup_steps)},
                  {"max_grad_norm", number(optimizer.max_grad_norm)},
                  {"threads", std::to_string(options.threads_per_rank)}};
  return run;
}

void require_same_run(const CheckpointManifest& checkpoint, const CheckpointManifest& run,
                      const Job& job, const std::string& folder) {
  const std::string different = differences(checkpoint.same, run.same);
  if (!different.empty()) {
    throw ConfigError(fmt::format("{}: saved with {}; resume with what it was saved with, or start "
                                  "anew in another folder",
                                  folder, different),
                      ExitCode::kPlanMismatch);
  }
  if (checkpoint.steps > job.options.steps) {
    throw ConfigError(fmt::format("{}: {} steps are done, --steps says {}; give more of them",
                                  folder, checkpoint.steps, job.options.steps),
                      ExitCode::kPlanMismatch);
  }
}

ResumePoint choose_checkpoint(const Job& job, const CheckpointManifest& run) {
  const std::string& wish = job.options.resume;
  if (wish == "auto") return newest_whole(job, run);
  return accept_checkpoint(job, verify_checkpoint(wish), run, wish);
}

int64_t most_new_checkpoints(const TrainOptions& options, int64_t from,
                             const std::vector<int64_t>& on_disk) {
  const int64_t every = options.save_every > 0 ? options.save_every : options.steps;
  const int64_t first = from / every;  // saves, counted from step 0
  const int64_t saves = options.steps / every - first + (options.steps % every != 0 ? 1 : 0);
  if (from >= options.steps) return 0;
  // When the last is written, all before it lie there as the rule has left them.
  const int64_t old = std::ssize(on_disk), before = saves - 1;
  const int64_t newest = std::min(options.keep_last, before);
  const int64_t newest_old = std::min(options.keep_last - newest, old);
  int64_t kept = 0;  // of those that are not the newest
  if (options.keep_every > 0) {
    const int64_t apart = options.keep_every / std::gcd(every, options.keep_every);  // in saves
    kept = (first + before - newest) / apart - first / apart +
           std::count_if(on_disk.begin() + newest_old, on_disk.end(),
                         [&](int64_t steps) { return steps % options.keep_every == 0; });
  }
  return std::max(int64_t{1}, newest + newest_old + kept + 1 - old);
}

void prepare_checkpoint_folder(const Job& job, const ResumePoint& from) {
  if (!job.options.wants_checkpoints()) return;
  const std::string root = checkpoints_folder(job.options.out);
  prepare_checkpoints(root);
  for (const FoundCheckpoint& found : list_checkpoints(root)) {
    std::error_code elsewhere;
    if (found.steps < from.steps || fs::equivalent(found.folder, from.folder, elsewhere)) continue;
    set_checkpoint_aside(found);
    say(fmt::format("note: {} is set aside as {}.old\n", found.folder,
                    fs::path(found.folder).filename().string()));
  }
  std::vector<int64_t> on_disk;
  for (const FoundCheckpoint& found : list_checkpoints(root)) on_disk.push_back(found.steps);
  const int64_t checkpoints = most_new_checkpoints(job.options, from.steps, on_disk);
  const int64_t each = bytes_of_trained_state(job.graph).count;
  require_space(root, {std::min(checkpoints, std::numeric_limits<int64_t>::max() / each) * each},
                fmt::format("{} more checkpoints are to lie there at once: keep fewer "
                            "(--keep-last, --keep-every) or name another folder with --out",
                            checkpoints));
}

}  // namespace stagecraft
