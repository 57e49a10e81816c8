#include "pipeline/train/audit_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/weights/save_folder.h"
#include "partitioner/base/error.h"
#include "partitioner/base/files.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kSharedFacts[] = "audit.json";

// Gradient, weights before and after; two moments more from the second step on. Data of the batch
// is small beside them.
Bytes bytes_needed(const Job& job) {
  int64_t trainable = 0;
  for (const Block& block : job.graph.blocks) {
    if (block.trainable) trainable += block.parameters();
  }
  int64_t tensors = 0;
  for (const int64_t step : job.options.audit_steps) tensors += step == 0 ? 3 : 5;
  return {trainable * tensors * size_of(DType::kF32)};
}

json shared_facts(const Job& job) {
  const TrainConfig& train = job.plan.train;
  const TrainOptions& options = job.options;
  const OptimizerConfig& optimizer = options.optimizer;
  json facts = {
      {"format", kAuditFormat},
      {"plan_hash", plan_hash(job.plan)},
      {"model", job.model.name},
      {"width", train.width},
      {"height", train.height},
      {"precision", train.precision},
      {"batch", train.batch},
      {"micro_batches", job.resolved.micro_batch_sizes},
      {"ranks", job.resolved.placement.ranks()},
      {"steps", options.audit_steps},
      {"seed", options.seed},
      {"caption_dropout", options.caption_dropout},
      {"trainable",
       {{"what", train.trainable.what},
        {"sd_locked", train.trainable.sd_locked},
        {"only_mid_control", train.trainable.only_mid_control}}},
      {"optimizer",
       {{"learning_rate", optimizer.learning_rate},
        {"beta1", optimizer.beta1},
        {"beta2", optimizer.beta2},
        {"eps", optimizer.eps},
        {"weight_decay", optimizer.weight_decay},
        {"warmup_steps", optimizer.warmup_steps},
        {"max_grad_norm", optimizer.max_grad_norm}}},
      {"noise",
       {{"timesteps", job.model.noise.timesteps},
        {"linear_start", job.model.noise.linear_start},
        {"linear_end", job.model.noise.linear_end}}},
      {"unet", json::parse(diffusers_config(job.model, "unet"))},
  };
  if (train.trainable.what == "controlnet") {
    facts["controlnet"] = json::parse(diffusers_config(job.model, "controlnet"));
  }
  return facts;
}

[[noreturn]] void refuse(const std::string& folder, const std::string& why) {
  throw InputError(ExitCode::kIo, fmt::format("--audit {}: {}", folder, why));
}

}  // namespace

std::string audit_step_folder(const std::string& audit, int64_t step) {
  return fmt::format("{}/step_{:06}", audit, step);
}

std::string start_audit(const Job& job) {
  const std::string& folder = job.options.audit;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) refuse(folder, "cannot make the folder: " + failed.message());
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (entry.path().filename() == kSharedFacts) continue;  // of a run that came to no step
    throw Error(ExitCode::kOutputInUse,
                fmt::format("--audit {}: holds files already; choose another folder", folder));
  }
  if (failed) refuse(folder, "cannot look into it: " + failed.message());
  const Bytes needed = bytes_needed(job);
  require_space(folder, needed, "audit fewer steps or name another folder with --audit");
  write_file_atomically(fmt::format("{}/{}", folder, kSharedFacts),
                        shared_facts(job).dump(2) + "\n");
  return fmt::format("audit: {} step(s) ({}) take about {:.1f} MiB in {}\n",
                     job.options.audit_steps.size(), fmt::join(job.options.audit_steps, ", "),
                     needed.mib(), folder);
}

}  // namespace stagecraft
