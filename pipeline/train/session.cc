#include "pipeline/train/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "models/network/build.h"
#include "partitioner/plan/report.h"
#include "pipeline/comm/descriptor.h"
#include "pipeline/launch/launcher.h"
#include "pipeline/train/children.h"
#include "pipeline/train/job.h"
#include "pipeline/train/trained_weights.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

// The lock vanishes with the process, however it ends.
Descriptor lock_output(const std::string& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  const std::string path = folder + "/.lock";
  Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (lock.get() < 0) {
    throw InputError(ExitCode::kIo, fmt::format("--out {}: cannot write there: {}", folder,
                                                std::strerror(errno)));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error(ExitCode::kOutputInUse,
                fmt::format("--out {}: another run writes there; wait for it or choose another folder", folder));
  }
  return lock;
}

bool has_trained_weights(const Job& job) {
  const auto parts = trained_parts(job.graph);
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return fs::exists(job.options.out + "/" + part + "/config.json");
  });
}

void refuse_finished_output(const Job& job) {
  if (!has_trained_weights(job)) return;
  throw Error(ExitCode::kOutputInUse,
              fmt::format("--out {}: holds trained weights already; choose another folder", job.options.out));
}

int64_t parameters_of(const BlockGraph& graph) {
  int64_t sum = 0;
  for (const Block& block : graph.blocks) sum += block.parameters();
  return sum;
}

std::vector<std::string> stage_labels(const Placement& placement) {
  std::vector<std::string> labels(static_cast<size_t>(placement.ranks()));
  for (int stage = 0; stage < placement.stages(); ++stage) {
    std::string& label = labels[static_cast<size_t>(placement.rank_of_stage[static_cast<size_t>(stage)])];
    label += fmt::format("{} {}", label.empty() ? "stage" : ",", stage);
  }
  return labels;
}

}  // namespace

ExitCode run_session(const TrainOptions& options, const std::vector<std::string>& command) {
  const Job job = load_job(options);
  open_weights(job);
  const Descriptor lock = lock_output(options.out);
  refuse_finished_output(job);
  fs::remove(options.out + "/metrics.jsonl");
  fs::remove(options.out + "/measured.json");
  fs::copy_file(options.plan, options.out + "/plan.yaml", fs::copy_options::overwrite_existing);

  const std::chrono::milliseconds stall_limit(options.timeout_seconds * 1000);
  const LaunchResult encoded = launch({.command = command,
                                       .ranks = 1,
                                       .labels = {"encoder"},
                                       .environment = {{kRoleVariable, kEncoderRole}},
                                       .threads_per_rank = options.threads_per_rank,
                                       .stall_limit = stall_limit});
  if (encoded.code != ExitCode::kOk) throw Error(encoded.code, encoded.reason);
  LaunchResult trained = launch({.command = command,
                                 .ranks = job.resolved.placement.ranks(),
                                 .labels = stage_labels(job.resolved.placement),
                                 .environment = {{kRoleVariable, kRankRole}},
                                 .threads_per_rank = options.threads_per_rank,
                                 .stall_limit = stall_limit});
  const bool stopped = trained.code == ExitCode::kInterrupted || trained.code == ExitCode::kTerminated;
  if (stopped && has_trained_weights(job)) {
    trained.reason += fmt::format("; what was trained so far is in {}", options.out);
  }
  if (trained.code != ExitCode::kOk) throw Error(trained.code, trained.reason);

  const std::string measured = options.out + "/measured.json";
  ReportOptions report{.other = {.vae = parameters_of(build_vae_encoder(job.model, 64, 64)) +
                                        parameters_of(build_vae_decoder(job.model, 64, 64)),
                                 .text_encoder = parameters_of(build_text_encoder(job.model))},
                       .measured = {},
                       .seen_on_one_device = {}};
  if (fs::exists(measured)) report.measured = read_measured(measured);
  fmt::print("\n{}", to_text(make_report(job.plan, job.graph, job.resolved.placement, report)));
  for (const std::string& part : trained_parts(job.graph)) {
    fmt::print("trained {}: {}/{} (diffusers: from_pretrained)\n", part, options.out, part);
  }
  return ExitCode::kOk;
}

}  // namespace stagecraft
