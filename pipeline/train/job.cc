#include "pipeline/train/job.h"

#include <fmt/format.h>

#include <utility>

#include "models/network/build.h"
#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

void append_params(const BlockGraph& graph, std::vector<Param>& params) {
  for (const Block& block : graph.blocks) {
    params.insert(params.end(), block.params.begin(), block.params.end());
  }
}

}  // namespace

Job load_job(const TrainOptions& options) {
  Job job;
  job.options = options;
  job.plan = read_plan(options.plan);
  const TrainConfig& train = job.plan.train;
  if (train.precision != "fp32") {
    throw ConfigError(
        fmt::format("{}: planned for {}; CPU ranks train fp32 only: plan again with "
                    "`partition --precision fp32`",
                    options.plan, train.precision));
  }
  job.model = read_model_config(train.model);
  job.graph =
      build_training_graph(job.model, train.width, train.height, train.trainable, train.precision);
  job.resolved = resolve_plan(job.plan, job.graph, options.plan);
  return job;
}

std::unique_ptr<WeightSource> open_weights(const Job& job, WeightUse use) {
  if (job.options.init_random) return random_weights(*job.options.init_random);
  const TrainConfig& train = job.plan.train;
  std::vector<Param> expected;
  if (use != WeightUse::kEncoding) append_params(job.graph, expected);
  if (use != WeightUse::kTraining) {
    append_params(build_vae_encoder(job.model, train.width, train.height), expected);
    append_params(build_vae_decoder(job.model, train.width, train.height), expected);
    append_params(build_text_encoder(job.model), expected);
  }
  return open_diffusers_folder(job.options.weights, expected, job.options.seed);
}

}  // namespace stagecraft
