#include "pipeline/rehearse/rehearsal_loop.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "partitioner/plan/measured.h"
#include "pipeline/exec/rank_executor.h"
#include "pipeline/exec/tracking_allocator.h"
#include "pipeline/profile/profiler.h"
#include "pipeline/rehearse/rehearsal_report.h"
#include "pipeline/rehearse/rehearsed_runner.h"
#include "pipeline/train/console.h"
#include "pipeline/train/handshake.h"
#include "pipeline/train/loop_control.h"
#include "pipeline/train/measured_trace.h"
#include "pipeline/train/resources.h"

namespace stagecraft {
namespace {

// Zeros of the real shapes: no data set is read.
class BlankSamples : public SampleSource {
 public:
  explicit BlankSamples(const Rehearsal& rehearsal) : of_(rehearsal) {}
  int64_t size() const override { return of_.plan.train.batch; }
  at::Tensor latents(std::span<const Draw> draws) override {
    return zeros(
        {samples(draws), of_.model.vae.latent_channels, of_.graph.height / 8, of_.graph.width / 8});
  }
  at::Tensor context(std::span<const Draw> draws) override {
    return zeros(
        {samples(draws), of_.model.text_encoder.max_length, of_.model.unet.cross_attention_dim});
  }
  at::Tensor hint(std::span<const Draw> draws) override {
    return zeros({samples(draws), of_.model.controlnet.conditioning_channels, of_.graph.height,
                  of_.graph.width});
  }

 private:
  static int64_t samples(std::span<const Draw> draws) { return static_cast<int64_t>(draws.size()); }
  static at::Tensor zeros(const std::vector<int64_t>& shape) { return at::zeros(shape); }

  const Rehearsal& of_;
};

// What every rank tells the others at the end of a step; times of the steady clock.
struct StepReport {
  int64_t start = 0, end = 0, busy = 0;
  int64_t stop = 0;
};

struct LinkReport {
  int64_t messages = 0, bytes = 0, nanos = 0;
};

int64_t nanos_of(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

class RehearsalLoop {
 public:
  RehearsalLoop(const Rehearsal& rehearsal, const RankSurroundings& around)
      : rehearsal_(rehearsal),
        comm_(around.comm),
        control_(around.control, around.page),
        stop_(around.requests.stop),
        received_(static_cast<size_t>(around.comm.size())) {}

  LoopEnd run() {
    TrackingAllocator::install();
    at::set_num_threads(1);
    base_rss_ = resident_now().total();
    shake_hands();
    control_.enter(Section::kLoad);
    const auto rank = static_cast<size_t>(comm_.rank());
    const auto by_kind = block_costs_by_kind(rehearsal_.graph, rehearsal_.costs);
    RehearsedRunner blocks(
        {.graph = rehearsal_.graph,
         .costs = by_kind[static_cast<size_t>(rehearsal_.costs.kind_of_rank(comm_.rank()))],
         .micro_batch = rehearsal_.costs.micro_batch(),
         .parameters = static_bytes(rehearsal_.memory[rank])});
    BlankSamples samples(rehearsal_);
    const ResolvedPlan& resolved = rehearsal_.resolved;
    const ExecutionPlan plan{rehearsal_.graph, resolved.placement, resolved.schedule,
                             resolved.micro_batch_sizes, rehearsal_.model};
    RankExecutor executor(plan, comm_.rank(), blocks, comm_, samples);
    control_.follow(executor);
    times_.resize(actions_here().size());
    executor.times = &times_;
    const LoopEnd end = rehearse(executor);
    if (end == LoopEnd::kFinished) report();
    control_.gather("goodbye", "");
    if (!text_.empty()) say(text_);
    return end;
  }

 private:
  const std::vector<Action>& actions_here() const {
    return rehearsal_.resolved.schedule.ranks[static_cast<size_t>(comm_.rank())];
  }

  void shake_hands() {
    const RehearsalOptions& options = rehearsal_.options;
    control_.enter(Section::kConnect);
    HandshakeFacts facts = facts_of_plan(rehearsal_.plan, rehearsal_.graph,
                                         rehearsal_.resolved.schedule, comm_.size());
    facts.insert(facts.end(),
                 {{"rehearsed step", fmt::format("{}", rehearsal_.planned.makespan.count)},
                  {"steps", std::to_string(options.steps)},
                  {"scale of memory", fmt::format("{}", options.scale_memory)}});
    compare_with_all_ranks(facts, control_.channel());
  }

  LoopEnd rehearse(RankExecutor& executor) {
    std::vector<Draw> draws(static_cast<size_t>(rehearsal_.plan.train.batch));
    for (size_t i = 0; i < draws.size(); ++i) draws[i].sample = static_cast<int64_t>(i);
    figures_.ranks.resize(static_cast<size_t>(comm_.size()));
    TrackingAllocator::reset_peak();
    int64_t last_end = 0;
    for (int64_t step = 0; step <= rehearsal_.options.steps; ++step) {
      control_.begin_step(step);
      const double cpu_start = process_cpu_seconds();
      const int64_t start = nanos_of(std::chrono::steady_clock::now());
      const StepOutput output = executor.run(RunMode::kTrain, step, draws);
      const StepReport mine{.start = start,
                            .end = nanos_of(times_.back().end),
                            .busy = output.busy.count,
                            .stop = stop_.load() ? 1 : 0};
      if (output.peak.total > fullest_moment_.total) fullest_moment_ = output.peak;
      const auto all = control_.gather_plain(fmt::format("end of step {}", step), mine);
      if (std::ranges::any_of(all, [](const StepReport& one) { return one.stop != 0; })) {
        return LoopEnd::kStopped;
      }
      const int64_t first = std::ranges::min_element(all, {}, &StepReport::start)->start;
      const int64_t last = std::ranges::max_element(all, {}, &StepReport::end)->end;
      if (step > 0) {
        count_step(all, first, last);
        figures_.between.push_back({first - last_end});
        cpu_seconds_ += process_cpu_seconds() - cpu_start;
        count_received();
      }
      last_end = last;
    }
    return LoopEnd::kFinished;
  }

  void count_step(const std::vector<StepReport>& all, int64_t first, int64_t last) {
    figures_.step.push_back({last - first});
    for (size_t r = 0; r < all.size(); ++r) {
      figures_.ranks[r].end.push_back({all[r].end - first});
      figures_.ranks[r].busy.push_back({all[r].busy});
    }
  }

  void count_received() {
    const auto& actions = actions_here();
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].kind != ActionKind::kReceive) continue;
      const Message& message =
          rehearsal_.resolved.schedule.messages[static_cast<size_t>(actions[i].message)];
      LinkReport& link = received_[static_cast<size_t>(message.src_rank)];
      ++link.messages;
      link.bytes += message.bytes.count;
      link.nanos += nanos_of(times_[i].end) - nanos_of(times_[i].start);
    }
  }

  void report() {
    gather_links();
    const std::vector<MeasuredRank> measured = gather_memory();
    const RehearsalOptions& options = rehearsal_.options;
    std::vector<TimedAction> actions;
    if (!options.trace.empty()) actions = gather_action_times(times_, control_);
    if (!control_.first_rank()) return;
    for (size_t r = 0; r < measured.size(); ++r) {
      figures_.ranks[r].held = measured[r].peak_allocator;
      figures_.ranks[r].peak_rss = measured[r].peak_rss;
    }
    simulate_beside(rehearsal_, figures_);
    if (!options.measured.empty()) {
      write_measured({.plan_hash = plan_hash(rehearsal_.plan),
                      .machine = "rehearsal on " + describe_machine(),
                      .steps = options.steps,
                      .ranks = measured},
                     options.measured);
    }
    if (!options.trace.empty()) {
      write_measured_trace(rehearsal_.plan, rehearsal_.resolved.schedule, actions, options.trace);
    }
    text_ = options.json ? to_json(rehearsal_, figures_) + "\n" : to_text(rehearsal_, figures_);
  }

  void gather_links() {
    const std::string_view bytes(reinterpret_cast<const char*>(received_.data()),
                                 received_.size() * sizeof(LinkReport));
    const auto texts = control_.gather("links", bytes);
    for (size_t to = 0; to < texts.size(); ++to) {
      check(texts[to].size() == bytes.size(), "a rank's links have a wrong size");
      std::vector<LinkReport> links(received_.size());
      std::memcpy(links.data(), texts[to].data(), texts[to].size());
      for (size_t from = 0; from < links.size(); ++from) {
        if (links[from].messages == 0) continue;
        figures_.links.push_back({.from = static_cast<int>(from),
                                  .to = static_cast<int>(to),
                                  .messages = links[from].messages,
                                  .bytes = {links[from].bytes},
                                  .time = {links[from].nanos}});
      }
    }
  }

  std::vector<MeasuredRank> gather_memory() {
    const auto rank = static_cast<size_t>(comm_.rank());
    const RankMemory& planned = rehearsal_.memory[rank];
    MeasuredRank mine;
    for (const MemoryLine line : {MemoryLine::kWeights, MemoryLine::kGradients,
                                  MemoryLine::kMasterWeights, MemoryLine::kOptimizer}) {
      mine.memory[line] = planned[line];  // one piece of memory holds them
    }
    mine.memory[MemoryLine::kProcessBase] = base_rss_;
    mine.memory[MemoryLine::kRecompute] = fullest_moment_.recompute;
    mine.memory[MemoryLine::kBoundary] = fullest_moment_.boundary;
    mine.memory[MemoryLine::kWorkspace] = fullest_moment_.workspace;
    mine.peak_allocator = TrackingAllocator::peak();
    mine.memory[MemoryLine::kActivations] = mine.peak_allocator - mine.memory.without_base();
    mine.peak_rss = peak_resident_bytes();
    mine.base_rss = base_rss_;
    const auto steps = static_cast<double>(rehearsal_.options.steps);
    for (const Nanos busy : figures_.ranks[rank].busy) mine.busy_seconds += busy.seconds() / steps;
    mine.busy_cpu_seconds = mine.busy_seconds;  // a sleeping block waits for no core
    for (const Nanos step : figures_.step) mine.step_seconds += step.seconds() / steps;
    mine.cpu_seconds = cpu_seconds_ / steps;
    return control_.gather_plain("measurements", mine);
  }

  const Rehearsal& rehearsal_;
  Communicator& comm_;
  LoopControl control_;
  const std::atomic<bool>& stop_;
  ActionTimes times_;                 // of the last step
  std::vector<LinkReport> received_;  // by sender
  RehearsalFigures figures_;
  PeakMemory fullest_moment_;
  Bytes base_rss_;
  double cpu_seconds_ = 0;
  std::string text_;
};

}  // namespace

LoopEnd rehearse_rank(const Rehearsal& rehearsal, const RankSurroundings& around) {
  return RehearsalLoop(rehearsal, around).run();
}

}  // namespace stagecraft
