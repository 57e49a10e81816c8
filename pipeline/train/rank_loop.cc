#include "pipeline/train/rank_loop.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/plan/measured.h"
#include "pipeline/exec/optimizer.h"
#include "pipeline/exec/tracking_allocator.h"
#include "pipeline/profile/profiler.h"
#include "pipeline/train/handshake.h"
#include "pipeline/train/metrics.h"
#include "pipeline/train/resources.h"
#include "pipeline/train/trained_weights.h"

namespace stagecraft {
namespace {

// The fixed set that is evaluated lies in epochs no training reaches: its noise and timesteps are drawn for it alone.
constexpr int64_t kEvaluationEpoch = int64_t{1} << 40;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename Plain>
std::vector<Plain> all_gather_plain(ControlChannel& control, const std::string& what, const Plain& mine) {
  static_assert(std::is_trivially_copyable_v<Plain>);
  const auto texts = control.all_gather(what, {reinterpret_cast<const char*>(&mine), sizeof(mine)});
  std::vector<Plain> all(texts.size());
  for (size_t r = 0; r < texts.size(); ++r) {
    check(texts[r].size() == sizeof(Plain), "a rank's facts have a wrong size");
    std::memcpy(&all[r], texts[r].data(), sizeof(Plain));
  }
  return all;
}

// What every rank tells the others at the end of a step: the vote, and what rank 0 shows.
struct StepFacts {
  double loss_sum = 0;    // over this rank's samples; only the last stage has any
  int64_t stop = 0;
  int64_t peak_bytes = 0;
};

struct MeasuredFacts {
  RankMemory memory;
  Bytes peak_allocator, peak_rss, base_rss;
  double busy_seconds, step_seconds, cpu_seconds;
};

// Summed in batch order, so that the value does not depend on the pipeline.
double sum_of(const std::vector<float>& losses) {
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

class Loop {
 public:
  Loop(const Job& job, SampleSource& samples, Communicator& comm, ControlChannel& control,
       const RankWatch& watch)
      : job_(job), samples_(samples), comm_(comm), control_(control), watch_(watch) {}

  LoopEnd run() {
    TrackingAllocator::install();
    at::set_num_threads(job_.options.threads_per_rank);
    base_rss_ = resident_bytes();
    section("handshake", -1);
    shake_hands();
    section("load", -1);
    RankParameters parameters(job_.graph, job_.resolved.placement, comm_.rank(), *open_weights(job_));
    const ExecutionPlan plan{job_.graph,           job_.resolved.placement, job_.resolved.schedule,
                             job_.resolved.micro_batch_sizes, job_.model,   job_.options.seed};
    RankExecutor executor(plan, comm_.rank(), parameters, comm_, samples_);
    executor.on_action = watch_.on_action;
    show_mean_loss(executor, "before");
    const LoopEnd end = train(executor, parameters);
    if (end == LoopEnd::kFinished) show_mean_loss(executor, "after");
    section("save", -1);
    write_measurements(parameters);
    save_trained_parts(job_.graph, job_.resolved.placement, job_.model, parameters, comm_,
                       job_.options.out);
    control_.all_gather("goodbye", "");
    return end;
  }

 private:
  bool first_rank() const { return comm_.rank() == 0; }

  void section(std::string_view name, int64_t step) {
    if (watch_.on_section) watch_.on_section(name, step);
  }

  void shake_hands() {
    const TrainConfig& train = job_.plan.train;
    const OptimizerConfig& optimizer = job_.options.optimizer;
    compare_with_all_ranks(
        {{"plan", plan_hash(job_.plan)},
         {"model graph", job_.graph.model + " " + graph_hash(job_.graph)},
         {"number of messages", std::to_string(job_.resolved.schedule.messages.size())},
         {"world size", std::to_string(comm_.size())},
         {"precision", train.precision},
         {"seed", std::to_string(job_.options.seed)},
         {"steps", std::to_string(job_.options.steps)},
         {"threads", std::to_string(at::get_num_threads())},
         {"samples", std::to_string(samples_.size())},
         {"optimizer", fmt::format("lr {} betas {} {} eps {} decay {} warm-up {} clip {}",
                                   optimizer.learning_rate, optimizer.beta1, optimizer.beta2,
                                   optimizer.eps, optimizer.weight_decay, optimizer.warmup_steps,
                                   optimizer.max_grad_norm)}},
        control_);
    const int ranks = job_.resolved.placement.ranks();
    if (comm_.size() != ranks) {
      throw ConfigError(fmt::format("the plan is for {} ranks, {} were started", ranks, comm_.size()),
                        ExitCode::kPlanMismatch);
    }
  }

  LoopEnd train(RankExecutor& executor, RankParameters& parameters) {
    const TrainOptions& options = job_.options;
    std::optional<MetricsFile> file;
    std::optional<ProgressLine> line;
    if (first_rank()) {
      file.emplace(options.out + "/metrics.jsonl");
      line.emplace(options.steps);
    }
    for (int64_t step = 0; step < options.steps; ++step) {
      section("train", step);
      const double start = seconds_now(), cpu_start = process_cpu_seconds();
      const auto draws = batch_of_step(options.seed, samples_.size(), job_.plan.train.batch, step);
      const StepOutput output = executor.run(RunMode::kTrain, step, draws);
      section("optimizer", step);
      const double norm = global_gradient_norm(parameters, control_, step);
      optimizer_step(parameters, options.optimizer, norm, step);
      if (output.peak.total > peak_.total) peak_ = output.peak;
      section("vote", step);
      const auto facts = all_gather_plain(
          control_, fmt::format("end of step {}", step),
          StepFacts{.loss_sum = sum_of(output.sample_losses),
                    .stop = watch_.stop != nullptr && watch_.stop->load() ? 1 : 0,
                    .peak_bytes = peak_.total.count});
      const double seconds = seconds_now() - start;
      if (step > 0 || options.steps == 1) {
        ++measured_steps_;
        busy_seconds_ += output.busy.seconds();
        step_seconds_ += seconds;
        cpu_seconds_ += process_cpu_seconds() - cpu_start;
      }
      StepMetrics metrics{.step = step,
                          .gradient_norm = norm,
                          .learning_rate = learning_rate_at(options.optimizer, step),
                          .seconds = seconds,
                          .samples = job_.plan.train.batch,
                          .fullest_rank = {}};
      bool stop = false;
      for (const StepFacts& fact : facts) {
        metrics.loss += fact.loss_sum / static_cast<double>(draws.size());
        metrics.fullest_rank = std::max(metrics.fullest_rank, Bytes{fact.peak_bytes});
        stop = stop || fact.stop != 0;
      }
      if (file) file->write(metrics);
      if (line) line->show(metrics);
      if (stop) {
        if (line) line->finish();
        return LoopEnd::kStopped;
      }
    }
    if (line) line->finish();
    return LoopEnd::kFinished;
  }

  void show_mean_loss(RankExecutor& executor, const char* when) {
    const int batches = job_.options.evaluate_batches;
    if (batches == 0) return;
    section("evaluate", -1);
    const int64_t batch = job_.plan.train.batch, size = samples_.size();
    double sum = 0;
    for (int b = 0; b < batches; ++b) {
      std::vector<Draw> draws;
      for (int64_t i = b * batch; i < (b + 1) * batch; ++i) {
        draws.push_back({.epoch = kEvaluationEpoch + i / size, .sample = i % size});
      }
      const int64_t tag = -2 - b;
      const StepOutput output = executor.run(RunMode::kEvaluate, tag, draws);
      const auto facts = all_gather_plain(control_, fmt::format("evaluation batch {}", b),
                                          StepFacts{.loss_sum = sum_of(output.sample_losses)});
      for (const StepFacts& fact : facts) sum += fact.loss_sum;
    }
    if (first_rank()) {
      fmt::print("mean loss over {} fixed (sample, timestep, noise) {} training: {:.5f}\n",
                 batches * batch, when, sum / static_cast<double>(batches * batch));
      std::fflush(stdout);
    }
  }

  void write_measurements(const RankParameters& parameters) {
    MeasuredFacts facts{};
    RankMemory& memory = facts.memory;
    memory[MemoryLine::kProcessBase] = base_rss_;
    for (const ParameterSlot& slot : parameters.slots()) {
      memory[MemoryLine::kWeights] += {static_cast<int64_t>(slot.weight.nbytes())};
      if (!slot.trained) continue;
      memory[MemoryLine::kGradients] += {static_cast<int64_t>(slot.gradient.nbytes())};
      memory[MemoryLine::kOptimizer] +=
          {static_cast<int64_t>(slot.exp_avg.nbytes() + slot.exp_avg_sq.nbytes())};
    }
    memory[MemoryLine::kBoundary] = peak_.boundary;
    memory[MemoryLine::kWorkspace] = peak_.workspace;
    memory[MemoryLine::kActivations] = peak_.total - memory.without_base();
    const double steps = static_cast<double>(std::max<int64_t>(measured_steps_, 1));
    facts.peak_allocator = peak_.total;
    facts.peak_rss = peak_resident_bytes();
    facts.base_rss = base_rss_;
    facts.busy_seconds = busy_seconds_ / steps;
    facts.step_seconds = step_seconds_ / steps;
    facts.cpu_seconds = cpu_seconds_ / steps;
    const auto all = all_gather_plain(control_, "measurements", facts);
    if (!first_rank() || measured_steps_ == 0) return;
    Measured measured{.plan_hash = plan_hash(job_.plan),
                      .machine = describe_machine(),
                      .steps = measured_steps_,
                      .ranks = {}};
    for (const MeasuredFacts& rank : all) {
      measured.ranks.push_back({.memory = rank.memory,
                                .peak_allocator = rank.peak_allocator,
                                .peak_rss = rank.peak_rss,
                                .base_rss = rank.base_rss,
                                .busy_seconds = rank.busy_seconds,
                                .step_seconds = rank.step_seconds,
                                .cpu_seconds = rank.cpu_seconds});
    }
    write_measured(measured, job_.options.out + "/measured.json");
  }

  const Job& job_;
  SampleSource& samples_;
  Communicator& comm_;
  ControlChannel& control_;
  const RankWatch& watch_;
  PeakMemory peak_;
  Bytes base_rss_;
  int64_t measured_steps_ = 0;
  double busy_seconds_ = 0, step_seconds_ = 0, cpu_seconds_ = 0;
};

}  // namespace

LoopEnd run_rank(const Job& job, SampleSource& samples, Communicator& comm, ControlChannel& control,
                 const RankWatch& watch) {
  return Loop(job, samples, comm, control, watch).run();
}

}  // namespace stagecraft
