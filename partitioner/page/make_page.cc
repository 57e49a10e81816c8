#include <fmt/format.h>

#include "partitioner/base/format.h"
#include "partitioner/page/page.h"
#include "partitioner/simulate/costs.h"

namespace stagecraft {
namespace {

std::string trained_text(const TrainableConfig& trainable) {
  if (trainable.what == "unet") return "the whole UNet";
  std::string text = "ControlNet";
  if (!trainable.sd_locked) text += " and the UNet's decoder";
  if (trainable.only_mid_control) text += ", middle control only";
  return text;
}

// "4 x rtx3090", "2 x a, 1 x b" in order of ranks.
std::string devices_text(const std::vector<PlannedRank>& ranks) {
  std::string text;
  for (size_t r = 0; r < ranks.size();) {
    size_t end = r;
    while (end < ranks.size() && ranks[end].device == ranks[r].device) ++end;
    text += fmt::format("{}{} × {}", text.empty() ? "" : ", ", end - r, ranks[r].device);
    r = end;
  }
  return text;
}

std::string job_text(const Plan& plan) {
  return fmt::format("Trains {} at {} × {} pixels in {}, {}, on {} (cluster {}): {}, schedule {}.",
                     trained_text(plan.train.trainable), plan.train.width, plan.train.height,
                     plan.train.precision, batch_text(plan), devices_text(plan.ranks), plan.cluster,
                     counted(static_cast<int64_t>(plan.stages.size()), "stage"),
                     schedule_text(plan));
}

class PageMaker {
 public:
  explicit PageMaker(const PageSources& sources)
      : sources_(sources), costs_(block_costs_by_kind(sources.graph, sources.costs)) {}

  Page make() {
    const Plan& plan = sources_.plan;
    Page page;
    page.model = sources_.graph.model;
    page.job = job_text(plan);
    page.reasons = reasons_of(sources_.report);
    page.report = sources_.report;
    page.makespan = sources_.step.makespan;
    if (page.makespan != plan.predicted_step) {
      page.notes.push_back(fmt::format(
          "Timeline and block times come from {} costs, in which the step takes {}; the prediction "
          "of {} is from other costs ({}). --cost-table FILE gives those to the timeline as well.",
          sources_.costs.of_rank(0).made_by, millis_text(page.makespan),
          millis_text(plan.predicted_step), plan.cost_table));
    }
    add_step(page);
    page.bubbles = find_bubbles(sources_.resolved.schedule, sources_.step);
    for (size_t b = 0; b < sources_.graph.blocks.size(); ++b) page.blocks.push_back(block(b));
    return page;
  }

 private:
  const BlockCosts& costs_of_stage(int stage) const {  // -1, replicated: of rank 0
    const int rank =
        stage < 0 ? 0 : sources_.resolved.placement.rank_of_stage[static_cast<size_t>(stage)];
    return costs_.at(static_cast<size_t>(sources_.costs.kind_of_rank(rank)));
  }

  // Forwards that run again in the backward pass of one micro-batch of the table.
  std::vector<int64_t> recompute_of_stages() const {
    const Placement& placement = sources_.resolved.placement;
    std::vector<int64_t> sums(static_cast<size_t>(placement.stages()));
    for (size_t s = 0; s < sums.size(); ++s) {
      const BlockCosts& costs = costs_of_stage(static_cast<int>(s));
      for (const int b : placement.blocks_run_by(sources_.graph, static_cast<int>(s))) {
        const auto block = static_cast<size_t>(b);
        const bool has_backward = sources_.graph.blocks[block].state != BlockState::kF;
        if (placement.recompute[block] && has_backward) {
          sums[s] += costs[block]->forward.median.count;
        }
      }
    }
    return sums;
  }

  void add_step(Page& page) const {
    const Schedule& schedule = sources_.resolved.schedule;
    const std::vector<int64_t> recompute = recompute_of_stages();
    page.actions.resize(schedule.ranks.size());
    for (const TimedAction& timed : sources_.step.actions) {
      const auto rank = static_cast<size_t>(timed.rank);
      const Action& action = schedule.ranks[rank][static_cast<size_t>(timed.index)];
      if (is_compute(action)) {
        const bool runs_again =
            action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput;
        const int64_t samples =
            sources_.resolved.micro_batch_sizes[static_cast<size_t>(action.micro_batch)];
        const int64_t again = runs_again ? recompute[static_cast<size_t>(action.stage)] : 0;
        page.actions[rank].push_back(
            {.text = to_string(action),
             .kind = action.kind,
             .stage = action.stage,
             .micro_batch = action.micro_batch,
             .start = timed.start,
             .end = timed.end,
             .recompute = {scale_to(again, samples, sources_.costs.micro_batch())}});
      } else if (action.kind == ActionKind::kSend) {
        const Message& message = schedule.messages[static_cast<size_t>(action.message)];
        page.messages.push_back({.number = action.message,
                                 .direction = message.direction,
                                 .from_rank = message.src_rank,
                                 .to_rank = message.dst_rank,
                                 .micro_batch = message.micro_batch,
                                 .bytes = message.bytes,
                                 .start = timed.start,
                                 .end = timed.end});
      }
    }
  }

  PageBlock block(size_t b) const {
    const Block& block = sources_.graph.blocks[b];
    const Placement& placement = sources_.resolved.placement;
    PageBlock out{.name = block.name,
                  .stage = placement.stage_of_block[b],
                  .state = block.reaches_loss ? std::string(to_string(block.state)) : "never runs",
                  .parameters = block.parameters(),
                  .trainable = block.trainable,
                  .recompute = placement.recompute[b],
                  .forward = {},
                  .backward = {},
                  .saved = {}};
    if (const BlockCost* cost = costs_of_stage(out.stage)[b];
        cost != nullptr && block.reaches_loss) {
      out.forward = cost->forward.median;
      out.backward = cost->backward_input.median + cost->backward_weight.median;
      out.saved = cost->saved_internal;
    }
    return out;
  }

  const PageSources& sources_;
  std::vector<BlockCosts> costs_;  // by kind of device
};

}  // namespace

Page make_page(const PageSources& sources) { return PageMaker(sources).make(); }

}  // namespace stagecraft
