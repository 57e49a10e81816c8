// Rehearsals: what blocks hold while they sleep, how sleeps keep time, what fits on a machine.
#include "pipeline/rehearse/rehearsal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "models/network/build.h"
#include "partitioner/cost/analytic.h"
#include "partitioner/plan/make_plan.h"
#include "pipeline/comm/in_process.h"
#include "pipeline/exec/rank_executor.h"
#include "pipeline/exec/tracking_allocator.h"
#include "pipeline/rehearse/pace.h"
#include "pipeline/rehearse/rehearsed_runner.h"
#include "pipeline/rehearse/room.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

const std::string kCluster = STAGECRAFT_SOURCE_DIR "/configs/clusters/local_cpu_2.yaml";

BlockGraph rehearsed_graph() {
  return build_training_graph(tiny_model(), kTinyWidth, kTinyHeight, {}, "fp32");
}

Placement on_one_rank(const BlockGraph& graph, bool recompute) {
  Placement placement;
  placement.stage_of_block.assign(graph.blocks.size(), 0);
  placement.rank_of_stage = {0};
  placement.recompute.assign(graph.blocks.size(), recompute);
  return placement;
}

std::vector<Action> actions_of(const std::string& text) {
  std::vector<Action> actions;
  std::istringstream words(text);
  for (std::string word; words >> word;) actions.push_back(parse_action(word));
  return actions;
}

// A step of one rank, with micro-batches of 2 and 1 samples and sleeps that are over at once.
void expect_planned_bytes(const std::string& order, bool recompute, double scale_memory) {
  SCOPED_TRACE(order + (recompute ? ", recompute" : ""));
  const BlockGraph graph = rehearsed_graph();
  const Placement placement = on_one_rank(graph, recompute);
  const std::vector<int64_t> sizes = {2, 1};
  const Schedule schedule = insert_messages(graph, placement, {actions_of(order)}, sizes);
  const Cluster cluster = read_cluster(kCluster);
  const ClusterCosts costs =
      scaled_costs(analytic_cluster_costs(graph, cluster, "fp32", 2), 1, 1e-6, scale_memory);
  const RankMemory planned =
      predict_memory(graph, placement, costs, cluster.devices, schedule, sizes).front();
  TrackingAllocator::install();
  const Bytes before = TrackingAllocator::current();
  TrackingAllocator::reset_peak();
  const auto by_kind = block_costs_by_kind(graph, costs);
  RehearsedRunner blocks({.graph = graph,
                          .costs = by_kind.front(),
                          .micro_batch = costs.micro_batch(),
                          .parameters = static_bytes(planned)});
  InProcessWorld world(1, 10s);
  const auto comm = world.communicator(0);
  const ModelConfig model = tiny_model();
  RandomSamples samples(model, graph.width, graph.height, 3, 1);
  RankExecutor executor({graph, placement, schedule, sizes, model}, 0, blocks, *comm, samples);
  const std::vector<Draw> draws = {{.sample = 0}, {.sample = 1}, {.sample = 2}};
  for (int step = 0; step < 2; ++step) executor.run(RunMode::kTrain, step, draws);
  EXPECT_EQ((TrackingAllocator::peak() - before).count, held_bytes(planned).count);
  EXPECT_GT(held_bytes(planned), static_bytes(planned));
}

TEST(RehearsedMemory, IsThePlannedToTheByte) {
  for (const bool recompute : {false, true}) {
    expect_planned_bytes("F0.0 B0.0 F0.1 B0.1 step", recompute, 1);
    expect_planned_bytes("F0.0 F0.1 B0.0 B0.1 step", recompute, 1);
    expect_planned_bytes("F0.0 F0.1 I0.0 I0.1 W0.0 W0.1 step", recompute, 1);
  }
}

TEST(RehearsedMemory, IsThePlannedToTheByteWhereBytesAreScaled) {
  expect_planned_bytes("F0.0 F0.1 B0.0 B0.1 step", false, 0.1);
  expect_planned_bytes("F0.0 F0.1 B0.0 B0.1 step", false, 0);
}

class RehearsedPlan : public ::testing::Test {
 protected:
  // Two stages of the tiny model.
  Rehearsal load(RehearsalOptions options) {
    const BlockGraph graph = rehearsed_graph();
    Placement placement = on_one_rank(graph, false);
    placement.rank_of_stage = {0, 1};
    const size_t half = graph.blocks.size() / 2;
    for (size_t b = half; b < graph.blocks.size(); ++b) placement.stage_of_block[b] = 1;
    TrainConfig train;
    train.model = kTinyModelFile;
    train.width = kTinyWidth;
    train.height = kTinyHeight;
    train.batch = 2;
    train.precision = "fp32";
    options.plan = folder_.file("plan.yaml");
    Plan plan = make_plan(train, graph, placement, "1f1b");
    plan.cluster = "made up";
    write_plan(plan, graph, options.plan);
    return load_rehearsal(options);
  }
  TempFolder folder_;
};

TEST_F(RehearsedPlan, TimesAreScaledAndLinksAreNot) {
  const Rehearsal whole = load({.cluster = kCluster}),
                  tenth = load({.cluster = kCluster, .scale = 0.1});
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_NEAR(tenth.planned.busy[r].seconds(), whole.planned.busy[r].seconds() / 10, 1e-6);
  }
  EXPECT_GT(tenth.planned.makespan.seconds(), whole.planned.makespan.seconds() / 10);
}

TEST_F(RehearsedPlan, AMachineThatIsTooSmallIsToldWhichPartFits) {
  const Rehearsal rehearsal = load({.cluster = kCluster});
  const Bytes held = held_bytes(rehearsal.memory[0]) + held_bytes(rehearsal.memory[1]);
  EXPECT_NO_THROW(require_room(rehearsal, held * 4 + Bytes::from_mib(4096)));
  try {
    require_room(rehearsal, {1 << 20});
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_EQ(error.code(), ExitCode::kOutOfMemory);
    EXPECT_THAT(error.what(), HasSubstr("0.9 MiB to spare"));
  }
}

TEST_F(RehearsedPlan, AClusterWithFewerDevicesIsRefused) {
  try {
    load({.cluster = STAGECRAFT_SOURCE_DIR "/configs/clusters/local_cpu_1.yaml"});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kPlanMismatch);
    EXPECT_STREQ(error.what(), "the plan uses 2 ranks, cluster local_cpu_1 has 1 devices");
  }
}

TEST(Deadlines, ALateWakeUpIsTakenOffTheNextSleeps) {
  Deadlines deadlines;
  const Deadlines::Clock::time_point zero{};
  EXPECT_EQ(deadlines.of(zero, {1'000'000}), zero + 1ms);
  deadlines.ended(zero, {1'000'000}, zero + 1300us, true);
  EXPECT_EQ(deadlines.of(zero + 1300us, {1'000'000}), zero + 2ms);
  // Too short to make up for all of it.
  deadlines.ended(zero + 1300us, {100'000}, zero + 1300us, false);
  EXPECT_EQ(deadlines.of(zero + 1300us, {1'000'000}), zero + 2100us);
  deadlines.forget();
  EXPECT_EQ(deadlines.of(zero, {1'000'000}), zero + 1ms);
}

TEST(Deadlines, WorkBeyondABlocksTimeIsNotMadeUpFor) {
  Deadlines deadlines;
  const Deadlines::Clock::time_point zero{};
  deadlines.ended(zero, {1'000'000}, zero + 5ms, false);
  EXPECT_EQ(deadlines.of(zero + 5ms, {1'000'000}), zero + 6ms);
}

// A made-up /proc and /sys.
class Room : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path().string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  TempFolder folder_;
};

TEST_F(Room, IsWhatTheKernelHasAvailable) {
  write("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    4000 kB\n");
  EXPECT_EQ(available_memory(folder_.path()).count, 4000 * 1024);
}

TEST_F(Room, IsWhatTheTightestGroupLeavesWithoutItsPageCache) {
  write("/proc/meminfo", "MemAvailable: 4000 kB\n");
  write("/proc/self/cgroup", "0::/outer/inner\n");
  write("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  write("/sys/fs/cgroup/outer/memory.max", "3000000\n");
  write("/sys/fs/cgroup/outer/memory.current", "2500000\n");
  write("/sys/fs/cgroup/outer/memory.stat", "anon 7\ninactive_file 100000\n");
  EXPECT_EQ(available_memory(folder_.path()).count, 600000);
}

TEST_F(Room, KnowsGroupsOfTheFirstVersion) {
  write("/proc/meminfo", "MemAvailable: 4000 kB\n");
  write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/box\n");
  write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1000000\n");
  write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "400000\n");
  write("/sys/fs/cgroup/memory/box/memory.stat", "total_inactive_file 1000\n");
  EXPECT_EQ(available_memory(folder_.path()).count, 601000);
}

}  // namespace
}  // namespace stagecraft
