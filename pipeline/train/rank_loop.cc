#include "pipeline/train/rank_loop.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/plan/measured.h"
#include "pipeline/checkpoint/folder.h"
#include "pipeline/exec/autograd_runner.h"
#include "pipeline/exec/optimizer.h"
#include "pipeline/exec/rank_executor.h"
#include "pipeline/exec/rank_memory.h"
#include "pipeline/exec/tracking_allocator.h"
#include "pipeline/profile/profiler.h"
#include "pipeline/train/audit.h"
#include "pipeline/train/checkpoint_state.h"
#include "pipeline/train/checkpointing.h"
#include "pipeline/train/console.h"
#include "pipeline/train/handshake.h"
#include "pipeline/train/loop_control.h"
#include "pipeline/train/measured_trace.h"
#include "pipeline/train/metrics.h"
#include "pipeline/train/resources.h"
#include "pipeline/train/resume.h"
#include "pipeline/train/trained_weights.h"

namespace stagecraft {
namespace {

// The fixed set that is evaluated lies in epochs no training reaches: its noise and timesteps are
// drawn for it alone.
constexpr int64_t kEvaluationEpoch = int64_t{1} << 40;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What every rank tells the others at the end of a step: the vote, and what rank 0 shows.
struct StepFacts {
  double loss_sum = 0;         // over this rank's samples; only the last stage has any
  int64_t stop = 0, save = 0;  // asked for by a signal
  int64_t peak_bytes = 0;
  int64_t part_written = 0;  // of the checkpoint that is being written
};

// Summed in batch order, so that the value does not depend on the pipeline.
double sum_of(const std::vector<float>& losses) {
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

class Loop {
 public:
  Loop(const Job& job, SampleSource& samples, const std::string& data_identity,
       const RankSurroundings& around)
      : job_(job),
        samples_(samples),
        data_identity_(data_identity),
        comm_(around.comm),
        control_(around.control, around.page),
        requests_(around.requests) {}

  LoopEnd run() {
    TrackingAllocator::install();
    at::set_num_threads(job_.options.threads_per_rank);
    base_ = resident_now();
    const auto weights = open_weights(job_, WeightUse::kTraining);
    CheckpointManifest run = describe_run(job_, *weights, data_identity_);
    CheckpointManifest checkpoint;
    if (!job_.checkpoint.empty()) {
      checkpoint = read_checkpoint_manifest(job_.checkpoint);
      require_same_run(checkpoint, run, job_, job_.checkpoint);
    }
    first_step_ = steps_done_ = run.steps = checkpoint.steps;
    shake_hands(*weights, job_.checkpoint.empty() ? "none" : manifest_digest(checkpoint));
    control_.enter(Section::kLoad);
    RankParameters parameters(job_.graph, job_.resolved.placement, comm_.rank(), *weights,
                              [this] { control_.beat(); });
    if (!job_.checkpoint.empty()) {
      load_trained_state(job_.graph, job_.checkpoint, checkpoint, parameters,
                         [this] { control_.beat(); });
    }
    Checkpointing checkpoints(job_, parameters, std::move(run), control_);
    const ExecutionPlan plan{job_.graph,
                             job_.resolved.placement,
                             job_.resolved.schedule,
                             job_.resolved.micro_batch_sizes,
                             job_.model,
                             job_.options.seed};
    AutogradRunner blocks(job_.graph, parameters);
    RankExecutor executor(plan, comm_.rank(), blocks, comm_, samples_);
    control_.follow(executor);
    const auto observer =
        make_observer(job_, comm_.rank(), parameters, [this] { control_.beat(); });
    executor.on_data = [&observer](std::string_view what, int micro_batch,
                                   const at::Tensor& tensor) {
      observer->data(what, micro_batch, tensor);
    };
    LoopEnd end = LoopEnd::kNotStarted;
    if (evaluate(executor, "before") && !stop_wanted())
      end = train(executor, parameters, *observer, checkpoints);
    executor.times = nullptr;
    if (end == LoopEnd::kFinished) evaluate(executor, "after");
    if (end != LoopEnd::kNotStarted) {
      checkpoints.finish(steps_done_);
      write_measurements(parameters);
      control_.enter(Section::kSave);
      save_trained_parts({.graph = job_.graph,
                          .placement = job_.resolved.placement,
                          .model = job_.model,
                          .parameters = parameters,
                          .folder = job_.options.out},
                         comm_, [this] { control_.beat(); });
      if (!times_.empty()) write_trace();
    }
    control_.gather("goodbye", "");
    return end;
  }

 private:
  void shake_hands(const WeightSource& weights, const std::string& checkpoint) {
    const TrainOptions& options = job_.options;
    const OptimizerConfig& optimizer = options.optimizer;
    control_.enter(Section::kConnect);
    HandshakeFacts facts =
        facts_of_plan(job_.plan, job_.graph, job_.resolved.schedule, comm_.size());
    facts.insert(facts.end(),
                 {{"weights", weights.identity("unet")},
                  {"data", data_identity_},
                  {"seed", std::to_string(options.seed)},
                  {"steps", std::to_string(options.steps)},
                  {"checkpoint", checkpoint},
                  {"steps between checkpoints", std::to_string(options.save_every)},
                  {"evaluation batches", std::to_string(options.evaluate_batches)},
                  {"caption dropout", fmt::format("{}", options.caption_dropout)},
                  {"threads", std::to_string(at::get_num_threads())},
                  {"optimizer", fmt::format("lr {} betas {} {} eps {} decay {} warm-up {} clip {}",
                                            optimizer.learning_rate, optimizer.beta1,
                                            optimizer.beta2, optimizer.eps, optimizer.weight_decay,
                                            optimizer.warmup_steps, optimizer.max_grad_norm)}});
    compare_with_all_ranks(facts, control_.channel());
  }

  LoopEnd train(RankExecutor& executor, RankParameters& parameters, StepObserver& observer,
                Checkpointing& checkpoints) {
    const TrainOptions& options = job_.options;
    std::optional<MetricsFile> file;
    std::optional<ProgressLine> line;
    if (control_.first_rank()) {
      file.emplace(options.out + "/metrics.jsonl");
      line.emplace(options.steps);
    }
    SampleOrder order(options.seed, samples_.size());
    if (!options.trace.empty()) {
      times_.resize(job_.resolved.schedule.ranks[static_cast<size_t>(comm_.rank())].size());
      executor.times = &times_;
    }
    TrackingAllocator::reset_peak();
    for (int64_t step = first_step_; step < options.steps; ++step) {
      control_.begin_step(step);
      const double start = seconds_now(), cpu_start = process_cpu_seconds();
      const auto draws = order.batch_of_step(job_.plan.train.batch, step);
      observer.begin(step, draws);
      const StepOutput output = executor.run(RunMode::kTrain, step, draws);
      control_.enter(Section::kVote);
      const double norm = global_gradient_norm(parameters, control_.channel(), step);
      control_.enter(Section::kOptimizer);
      observer.gradients_ready(norm);
      optimizer_step(parameters, options.optimizer, norm, step);
      observer.updated();
      if (!times_.empty()) times_.back().end = std::chrono::steady_clock::now();
      if (output.peak.total > fullest_moment_.total) fullest_moment_ = output.peak;
      const auto facts =
          control_.gather_plain(fmt::format("end of step {}", step),
                                StepFacts{.loss_sum = sum_of(output.sample_losses),
                                          .stop = requests_.stop.load() ? 1 : 0,
                                          .save = requests_.save.exchange(false) ? 1 : 0,
                                          .peak_bytes = TrackingAllocator::peak().count,
                                          .part_written = checkpoints.part_written()});
      steps_done_ = step + 1;
      const double seconds = seconds_now() - start;
      if (step > first_step_ || options.steps == first_step_ + 1) {
        ++measured_steps_;
        busy_seconds_ += output.busy.seconds();
        busy_cpu_seconds_ += output.busy_cpu.seconds();
        step_seconds_ += seconds;
        cpu_seconds_ += process_cpu_seconds() - cpu_start;
      }
      StepMetrics metrics{.step = step,
                          .gradient_norm = norm,
                          .learning_rate = learning_rate_at(options.optimizer, step),
                          .seconds = seconds,
                          .samples = job_.plan.train.batch,
                          .fullest_rank = {}};
      bool stop = false, save = false, all_written = true;
      for (const StepFacts& fact : facts) {
        metrics.loss += fact.loss_sum / static_cast<double>(draws.size());
        metrics.fullest_rank = std::max(metrics.fullest_rank, Bytes{fact.peak_bytes});
        stop = stop || fact.stop != 0;
        save = save || fact.save != 0;
        all_written = all_written && fact.part_written != 0;
      }
      if (file) file->write(metrics);
      if (line) line->show(metrics);
      const bool goes_on = !stop && steps_done_ < options.steps;
      if (save && goes_on && control_.first_rank())
        say(fmt::format("note: a checkpoint of {} steps is saved, as SIGUSR1 asked\n",
                        steps_done_));
      checkpoints.end_of_step(steps_done_, all_written, goes_on, save);
      if (stop) {
        if (line) line->finish();
        peak_ = TrackingAllocator::peak();
        return LoopEnd::kStopped;
      }
    }
    if (line) line->finish();
    peak_ = TrackingAllocator::peak();
    return LoopEnd::kFinished;
  }

  // The vote before the first step: whether a rank was told to stop.
  bool stop_wanted() {
    const auto votes = control_.gather_plain("start of training", int64_t{requests_.stop.load()});
    return std::any_of(votes.begin(), votes.end(), [](int64_t vote) { return vote != 0; });
  }

  // Mean loss over the fixed set; false when a rank was told to stop meanwhile.
  bool evaluate(RankExecutor& executor, const char* when) {
    const int batches = job_.options.evaluate_batches;
    const int64_t batch = job_.plan.train.batch, size = samples_.size();
    double sum = 0;
    for (int b = 0; b < batches; ++b) {
      std::vector<Draw> draws;
      for (int64_t i = b * batch; i < (b + 1) * batch; ++i) {
        draws.push_back({.epoch = kEvaluationEpoch + i / size, .sample = i % size});
      }
      const int64_t tag = -2 - b;
      const StepOutput output = executor.run(RunMode::kEvaluate, tag, draws);
      const StepFacts mine{.loss_sum = sum_of(output.sample_losses), .stop = requests_.stop.load()};
      bool stop = false;
      for (const StepFacts& fact :
           control_.gather_plain(fmt::format("evaluation batch {}", b), mine)) {
        sum += fact.loss_sum;
        stop = stop || fact.stop != 0;
      }
      if (stop) return false;
    }
    if (control_.first_rank() && batches > 0) {
      say(fmt::format("mean loss over {} fixed (sample, timestep, noise) {} training: {:.5f}\n",
                      batches * batch, when, sum / static_cast<double>(batches * batch)));
    }
    return true;
  }

  void write_trace() {
    const auto actions = gather_action_times(times_, control_);
    if (!control_.first_rank()) return;
    write_measured_trace(job_.plan, job_.resolved.schedule, actions, job_.options.trace);
  }

  void write_measurements(const RankParameters& parameters) {
    MeasuredRank mine;
    mine.memory = memory_at_peak(parameters, fullest_moment_, peak_);
    mine.memory[MemoryLine::kProcessBase] = base_.total();
    const double steps = static_cast<double>(std::max<int64_t>(measured_steps_, 1));
    mine.peak_allocator = peak_;
    mine.peak_rss = peak_resident_bytes();
    mine.base_rss = base_.total();
    // Files that were mapped at the start may have been given back.
    const Resident now = resident_now();
    mine.grown_files = std::max(Bytes{}, now.files - base_.files);
    mine.grown_heap = std::max(Bytes{}, now.heap - base_.heap);
    mine.busy_seconds = busy_seconds_ / steps;
    mine.busy_cpu_seconds = busy_cpu_seconds_ / steps;
    mine.step_seconds = step_seconds_ / steps;
    mine.cpu_seconds = cpu_seconds_ / steps;
    const auto all = control_.gather_plain("measurements", mine);
    if (!control_.first_rank() || measured_steps_ == 0) return;
    write_measured({.plan_hash = plan_hash(job_.plan),
                    .machine = describe_machine(),
                    .steps = measured_steps_,
                    .ranks = all},
                   job_.options.out + "/measured.json");
  }

  const Job& job_;
  SampleSource& samples_;
  const std::string& data_identity_;
  Communicator& comm_;
  LoopControl control_;
  RankRequests& requests_;
  ActionTimes times_;  // of the last training step; empty: nobody wants them
  PeakMemory fullest_moment_;
  Bytes peak_;  // of the training steps
  Resident base_;
  int64_t first_step_ = 0;  // behind those that the checkpoint holds
  int64_t steps_done_ = 0;
  int64_t measured_steps_ = 0;
  double busy_seconds_ = 0, busy_cpu_seconds_ = 0, step_seconds_ = 0, cpu_seconds_ = 0;
};

}  // namespace

LoopEnd run_rank(const Job& job, SampleSource& samples, const std::string& data_identity,
                 const RankSurroundings& around) {
  return Loop(job, samples, data_identity, around).run();
}

}  // namespace stagecraft
