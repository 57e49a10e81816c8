#include "pipeline/train/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "partitioner/base/descriptor.h"
#include "partitioner/plan/report.h"
#include "pipeline/checkpoint/folder.h"
#include "pipeline/dataset/dataset.h"
#include "pipeline/launch/launcher.h"
#include "pipeline/train/audit_folder.h"
#include "pipeline/train/children.h"
#include "pipeline/train/console.h"
#include "pipeline/train/job.h"
#include "pipeline/train/metrics.h"
#include "pipeline/train/resume.h"
#include "pipeline/train/trained_weights.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

// Before a file in it is missed: says which flag named the folder.
void require_folder(const char* flag, const std::string& folder, const char* file = nullptr) {
  std::error_code ignored;
  if (folder.empty()) return;
  if (!fs::is_directory(folder, ignored)) {
    throw InputError(ExitCode::kIo, fmt::format("{} {}: no such folder", flag, folder));
  }
  if (file != nullptr && !fs::exists(fs::path(folder) / file, ignored)) {
    throw InputError(ExitCode::kIo, fmt::format("{} {}: no {} in it", flag, folder, file));
  }
}

// Ranks that share a core take turns.
void warn_about_crowded_cores(const Job& job) {
  const int ranks = job.resolved.placement.ranks(), threads = job.options.threads_per_rank;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores == 0 || threads == 1 || ranks * threads <= 2 * cores) return;
  fmt::print(stderr,
             "warning: {} ranks with {} threads each on {} cores; fewer --threads are faster\n",
             ranks, threads, cores);
}

// The lock vanishes with the process, however it ends.
Descriptor lock_output(const std::string& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  const std::string path = folder + "/.lock";
  Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!lock) {
    throw InputError(ExitCode::kIo,
                     fmt::format("--out {}: cannot write there: {}", folder, std::strerror(errno)));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error(
        ExitCode::kOutputInUse,
        fmt::format("--out {}: another run writes there; wait for it or choose another folder",
                    folder));
  }
  return lock;
}

void refuse_finished_output(const Job& job) {
  if (!job.options.resume.empty()) return;
  const auto checkpoints = list_checkpoints(checkpoints_folder(job.options.out));
  if (!checkpoints.empty()) {
    throw Error(ExitCode::kOutputInUse,
                fmt::format("--out {}: holds checkpoints, the newest of step {}; go on with "
                            "--resume auto, or choose another folder",
                            job.options.out, checkpoints.front().steps));
  }
  if (!has_trained_parts(job.graph, job.options.out)) return;
  throw Error(ExitCode::kOutputInUse,
              fmt::format("--out {}: holds trained weights already; choose another folder",
                          job.options.out));
}

// The training file may say something else than the plan that was made from it: flags of
// `partition` override it.
void tell_what_the_plan_overrides(const Job& job) {
  if (!job.options.config) return;
  const TrainConfig &plan = job.plan.train, &config = *job.options.config;
  std::string text;
  const auto compare = [&text](const char* name, const auto& planned, const auto& given) {
    if (planned != given)
      text += fmt::format("{}{} {} (not {})", text.empty() ? "" : ", ", name, planned, given);
  };
  std::error_code unknown;
  if (!fs::equivalent(plan.model, config.model, unknown)) {
    compare("model", plan.model, config.model);
  }
  compare("width", plan.width, config.width);
  compare("height", plan.height, config.height);
  compare("precision", plan.precision, config.precision);
  compare("batch", plan.batch, config.batch);
  compare("micro_batch", plan.micro_batch, config.micro_batch);
  compare("trainable.what", plan.trainable.what, config.trainable.what);
  compare("trainable.sd_locked", plan.trainable.sd_locked, config.trainable.sd_locked);
  compare("trainable.only_mid_control", plan.trainable.only_mid_control,
          config.trainable.only_mid_control);
  if (!text.empty()) say(fmt::format("note: the plan counts, not the training file: {}\n", text));
}

// What an earlier run left, which may be all that tells of it, is kept as NAME.old.
void set_aside(const std::string& out, const std::string& name) {
  const std::string path = out + "/" + name;
  std::error_code failed;
  fs::rename(path, path + ".old", failed);
  if (failed && failed != std::errc::no_such_file_or_directory) {
    throw InputError(ExitCode::kIo,
                     fmt::format("--out {}: cannot set {} aside ({}); choose another folder", out,
                                 name, failed.message()));
  }
}

// Measurements are of this run alone, metrics of all the steps that led to its weights; beside them
// lies its plan.
void begin_record(const Job& job, const ResumePoint& from) {
  const std::string &out = job.options.out, copy = out + "/plan.yaml";
  if (from.folder.empty()) {
    set_aside(out, "metrics.jsonl");
  } else {
    keep_metrics_before(out + "/metrics.jsonl", from.steps);
  }
  set_aside(out, "measured.json");
  std::error_code ignored;
  if (fs::equivalent(job.options.plan, copy, ignored)) return;
  set_aside(out, "plan.yaml");
  write_plan(job.plan, job.graph, copy);
}

void print_report(const Job& job) {
  if (job.plan.ranks.empty()) {
    say(
        fmt::format("no report: {0} holds no predictions, or those of before it was edited; "
                    "`partition verify {0} -o NEW --cluster "
                    "C` makes them\n",
                    job.options.plan));
    return;
  }
  ReportOptions options;
  const std::string measured = job.options.out + "/measured.json";
  if (fs::exists(measured)) options.measured = read_measured(measured);
  say("\n");
  say(balance_text(make_report(job.plan, job.graph, job.resolved.placement, options)));
}

}  // namespace

std::vector<std::string> stage_labels(const Placement& placement) {
  std::vector<std::string> labels(static_cast<size_t>(placement.ranks()));
  for (int stage = 0; stage < placement.stages(); ++stage) {
    std::string& label =
        labels[static_cast<size_t>(placement.rank_of_stage[static_cast<size_t>(stage)])];
    label += fmt::format("{} {}", label.empty() ? "stage" : ",", stage);
  }
  return labels;
}

ExitCode run_session(const TrainOptions& options, const std::vector<std::string>& command) {
  std::signal(SIGUSR1, [](int) {});  // asks the ranks to save: without any, nothing happens
  const Job job = load_job(options);
  require_folder("--data", options.data, "prompt.json");
  require_folder("--weights", options.weights);
  require_folder("--tokenizer", options.tokenizer);
  const auto weights = open_weights(job, WeightUse::kEverything);
  const Descriptor lock = lock_output(options.out);
  refuse_finished_output(job);
  tell_what_the_plan_overrides(job);
  warn_about_crowded_cores(job);
  if (!options.audit.empty()) say(start_audit(job));
  ResumePoint from;
  if (!options.resume.empty()) {
    const std::string data_identity = read_dataset(options.data).index_hash;
    from = choose_checkpoint(job, describe_run(job, *weights, data_identity));
  }

  const std::chrono::milliseconds stall_limit(options.timeout_seconds * 1000);
  const auto run = [&](const char* role, int ranks, std::vector<std::string> labels) {
    return launch({.command = command,
                   .ranks = ranks,
                   .labels = std::move(labels),
                   .environment = {{kRoleVariable, role}, {kCheckpointVariable, from.folder}},
                   .threads_per_rank = options.threads_per_rank,
                   .stall_limit = stall_limit,
                   .grace_limit = std::max(LaunchOptions{}.grace_limit, stall_limit)});
  };
  const LaunchResult encoded = run(kEncoderRole, 1, {"encoder"});
  if (encoded.code != ExitCode::kOk) throw Error(encoded.code, encoded.reason);
  if (encoded.asked_to_stop != ExitCode::kOk) {
    throw Error(encoded.asked_to_stop,
                "stopped before training; what was encoded stays in the cache");
  }
  prepare_checkpoint_folder(job, from);
  begin_record(job, from);
  const LaunchResult trained =
      run(kRankRole, job.resolved.placement.ranks(), stage_labels(job.resolved.placement));

  const bool stopped =
      trained.code == ExitCode::kInterrupted || trained.code == ExitCode::kTerminated;
  const bool saved = has_trained_parts(job.graph, options.out);
  if (trained.code == ExitCode::kOk || (stopped && saved)) {
    print_report(job);
    for (const std::string& part : trained_parts(job.graph)) {
      say(fmt::format("trained {}: {}/{} (diffusers: from_pretrained)\n", part, options.out, part));
    }
  }
  if (trained.code == ExitCode::kOk) return ExitCode::kOk;
  std::string reason = trained.reason;
  if (stopped) {
    reason += saved ? fmt::format("; what was trained so far is in {}", options.out)
                    : "; nothing was trained yet";
  }
  const auto checkpoints = list_checkpoints(checkpoints_folder(options.out));
  if (!checkpoints.empty()) {
    reason += fmt::format("; go on from step {} with --resume auto", checkpoints.front().steps);
  }
  throw Error(trained.code, reason);
}

}  // namespace stagecraft
