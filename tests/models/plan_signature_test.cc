// One number that fixes what the planner does: it changes with any plan of a fixed set of jobs.
// When it changes on purpose, put the new one here and say so in the commit (`Bench: <signature>`).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "models/config/model_config.h"
#include "models/network/build.h"
#include "partitioner/base/sha256.h"
#include "partitioner/cost/analytic.h"
#include "partitioner/solver/solver.h"

namespace stagecraft {
namespace {

struct SignedJob {
  const char *model, *cluster;
  TrainableConfig trainable;
  int64_t batch;
  double cap_mib;  // 0: the devices' memory
};

std::string plan_line(const SignedJob& job) {
  const std::string configs = std::string(STAGECRAFT_SOURCE_DIR) + "/configs/";
  const BlockGraph graph =
      build_training_graph(read_model_config(configs + "models/" + job.model + ".yaml"), 512, 512,
                           job.trainable, "fp16");
  const Cluster cluster = read_cluster(configs + "clusters/" + job.cluster + ".yaml");
  SolverOptions options{.batch = job.batch, .micro_batch = 1, .limits = {.nodes = 300'000}};
  if (job.cap_mib > 0)
    options.memory_caps.assign(cluster.devices.size(), Bytes::from_mib(job.cap_mib));
  const Solution solution =
      solve(graph, analytic_cluster_costs(graph, cluster, "fp16", 1), cluster, options);
  std::string line = fmt::format("{} {} {}:", job.model, job.cluster, job.batch);
  for (int stage : solution.placement.stage_of_block) line += fmt::format(" {}", stage);
  for (int rank : solution.placement.rank_of_stage) line += fmt::format(" r{}", rank);
  for (size_t b = 0; b < graph.blocks.size(); ++b)
    if (solution.placement.recompute[b]) line += fmt::format(" again {}", b);
  return line + "\n";
}

TEST(PlanSignature, IsTheOneOnRecord) {
  std::string plans;
  for (const SignedJob& job :
       {SignedJob{"sd15_controlnet", "4x3090", {}, 4, 0},
        SignedJob{"sd15_controlnet", "4x3090", {}, 4, 3600},
        SignedJob{"sd15_controlnet", "4x3090", {}, 16, 0},
        SignedJob{"sd15_controlnet", "4x3090", {.what = "unet"}, 8, 0},
        SignedJob{"sd15_controlnet", "4x3070", {.sd_locked = false}, 4, 0},
        SignedJob{"sd15_controlnet", "2x4080_2x3090", {}, 12, 0},
        SignedJob{"sd15_controlnet", "2hosts_4x3090", {.what = "unet"}, 16, 0}})
    plans += plan_line(job);
  EXPECT_EQ(sha256_hex(plans).substr(0, 8), "9b5832d3") << plans;
}

}  // namespace
}  // namespace stagecraft
