// Trains a graph with each rank in a process of its own, on random samples, and says what each
// rank held: what the memory model is held against. The calling process makes no tensors, so that
// it can be forked again.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "models/weights/weight_source.h"
#include "partitioner/base/files.h"
#include "partitioner/cost/cost_table.h"
#include "partitioner/plan/measured.h"
#include "pipeline/exec/autograd_runner.h"
#include "pipeline/exec/optimizer.h"
#include "pipeline/exec/rank_executor.h"
#include "pipeline/exec/rank_memory.h"
#include "pipeline/exec/tracking_allocator.h"
#include "pipeline/profile/profiler.h"
#include "tests/comm/socket_helpers.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {

struct ProcessRun {
  const ModelConfig& model;
  const BlockGraph& graph;
  const Placement& placement;
  const Schedule& schedule;
  const std::vector<int64_t>& micro_batch_sizes;
  int steps = 1;
};

// Of the calling process, which must hold no other tensors.
inline MeasuredRank train_as_rank(const ProcessRun& run, int rank, const SocketWorld& world) {
  constexpr uint64_t kSeed = 42;
  constexpr int64_t kSamples = 64;
  TrackingAllocator::install();
  at::set_num_threads(1);
  RankParameters parameters(run.graph, run.placement, rank, *random_weights(7));
  RandomSamples samples(run.model, run.graph.width, run.graph.height, kSamples, 3);
  const ExecutionPlan plan{run.graph, run.placement, run.schedule, run.micro_batch_sizes,
                           run.model, kSeed};
  AutogradRunner blocks(run.graph, parameters);
  RankExecutor executor(plan, rank, blocks, *world.communicator, samples);
  SampleOrder order(kSeed, kSamples);
  int64_t batch = 0;
  for (const int64_t size : run.micro_batch_sizes) batch += size;
  TrackingAllocator::reset_peak();
  PeakMemory fullest_moment;
  MeasuredRank mine{};
  for (int step = 0; step < run.steps; ++step) {
    const auto draws = order.batch_of_step(batch, step);
    const StepOutput output = executor.run(RunMode::kTrain, step, draws);
    const double norm = global_gradient_norm(parameters, *world.control, step);
    optimizer_step(parameters, {.learning_rate = 1e-5}, norm, step);
    if (output.peak.total > fullest_moment.total) fullest_moment = output.peak;
  }
  mine.peak_allocator = TrackingAllocator::peak();
  mine.memory = memory_at_peak(parameters, fullest_moment, mine.peak_allocator);
  return mine;
}

inline std::vector<MeasuredRank> train_in_processes(const ProcessRun& run) {
  const int ranks = run.placement.ranks();
  const TestFolder sockets;
  const TempFolder results;
  std::vector<ChildProcess> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.emplace_back([&, rank] {
      const SocketWorld world = join_as(test_options(sockets, ranks), rank);
      const MeasuredRank mine = train_as_rank(run, rank, world);
      write_file_atomically(results.file(std::to_string(rank)),
                            {reinterpret_cast<const char*>(&mine), sizeof(mine)});
      world.control->all_gather("goodbye", "");
      return 0;
    });
  }
  std::vector<MeasuredRank> all(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(children[static_cast<size_t>(rank)].join(), 0) << "rank " << rank;
    const std::string bytes = read_file(results.file(std::to_string(rank)), sizeof(MeasuredRank));
    std::memcpy(&all[static_cast<size_t>(rank)], bytes.data(), bytes.size());
  }
  return all;
}

// The profiler's table, made in a process of its own: the calling one stays without tensors and can
// be forked.
inline CostTable profile_in_process(const BlockGraph& graph, const TrainConfig& train,
                                    const ProfileOptions& options) {
  const TempFolder folder;
  ChildProcess child([&] {
    at::set_num_threads(1);
    write_cost_table(measure_blocks(graph, train, options).table, folder.file("costs.json"));
    return 0;
  });
  EXPECT_EQ(child.join(), 0);
  return read_cost_table(folder.file("costs.json"));
}

}  // namespace stagecraft
