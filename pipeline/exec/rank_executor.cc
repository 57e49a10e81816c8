#include "pipeline/exec/rank_executor.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "models/torch/runner.h"
#include "partitioner/base/error.h"
#include "partitioner/base/mistakes.h"
#include "partitioner/schedule/flow.h"
#include "pipeline/exec/gradient_sums.h"
#include "pipeline/exec/thread_clock.h"
#include "pipeline/exec/tracking_allocator.h"
#include "pipeline/exec/transfers.h"

namespace stagecraft {
namespace {

using Clock = std::chrono::steady_clock;

// A value or block of one micro-batch.
using Key = std::pair<int, int>;

struct HeldValue {
  at::Tensor tensor;
  int uses = 0;  // consumers and messages on this rank that are still to come
};

// Until a block's backward pass is over.
struct Kept {
  std::unique_ptr<KeptByBlock> by_block;
  Bytes rebuilt;  // what of it a second run of the block has made; 0 after a first run
};

}  // namespace

struct RankExecutor::State {
  const ExecutionPlan plan;
  const int rank;
  BlockRunner& blocks;

  std::vector<std::vector<int>> blocks_of_stage;
  const std::vector<int> uses_of_value;
  std::vector<int> action_of_message;  // where this rank sends or receives it

  // State of the step under way.
  RunMode mode = RunMode::kTrain;
  StepData data;
  Transfers transfers;
  std::map<Key, HeldValue> values;
  GradientSums gradients;                                      // by value
  std::map<Key, Kept> kept;                                    // by block
  std::map<Key, std::vector<at::Tensor>> inputs_to_run_again;  // of recomputed blocks
  std::map<Key, at::Tensor> deferred;  // output gradients that W still needs, by block
  Bytes rebuilt;                       // by all blocks that ran again
  StepOutput output;
  ActionTimes* times = nullptr;
  Clock::time_point first_block;  // of the action under way; zero before

  State(const ExecutionPlan& the_plan, int the_rank, BlockRunner& the_blocks, Communicator& comm,
        SampleSource& samples)
      : plan(the_plan),
        rank(the_rank),
        blocks(the_blocks),
        uses_of_value(uses_on_rank(plan.graph, plan.placement, plan.schedule, rank)),
        data(plan, samples),
        transfers(plan.schedule, comm) {
    for (int stage = 0; stage < plan.placement.stages(); ++stage) {
      blocks_of_stage.push_back(plan.placement.blocks_run_by(plan.graph, stage));
    }
    action_of_message.resize(plan.schedule.messages.size());
    const auto& actions = actions_here();
    for (size_t i = 0; i < actions.size(); ++i) {
      if (is_message(actions[i])) {
        action_of_message[static_cast<size_t>(actions[i].message)] = static_cast<int>(i);
      }
    }
  }

  const std::vector<Action>& actions_here() const {
    return plan.schedule.ranks[static_cast<size_t>(rank)];
  }
  const Block& block_at(int block) const { return plan.graph.blocks[static_cast<size_t>(block)]; }
  const Value& value_at(int value) const { return plan.graph.values[static_cast<size_t>(value)]; }
  const Message& message_at(int message) const {
    return plan.schedule.messages[static_cast<size_t>(message)];
  }

  void put_value(int value, int micro_batch, at::Tensor tensor) {
    const int uses = uses_of_value[static_cast<size_t>(value)];
    if (uses > 0) values[{value, micro_batch}] = {std::move(tensor), uses};
  }

  // One use of a value: made here, received, or a local input that is made now.
  at::Tensor use_value(int value, int micro_batch) {
    auto found = values.find({value, micro_batch});
    if (found == values.end()) {
      if (value_at(value).producer < 0) {
        put_value(value, micro_batch,
                  data.local_input(value, micro_batch).to(to_torch(value_at(value).dtype)));
      } else {
        finish_receive(Direction::kForward, value, micro_batch);
      }
      found = values.find({value, micro_batch});
      if (found == values.end()) {
        throw InternalError(
            fmt::format("rank {}: value {} of micro-batch {} was neither made nor received", rank,
                        value_at(value).name, micro_batch));
      }
    }
    at::Tensor tensor = found->second.tensor;
    if (--found->second.uses == 0) values.erase(found);
    return tensor;
  }

  at::Tensor take_gradient(int value, int micro_batch) {
    if (!gradients.contains(value, micro_batch)) {
      finish_receive(Direction::kBackward, value, micro_batch);
    }
    at::Tensor sum = gradients.take(value, micro_batch);
    if (!sum.defined()) {
      throw InternalError(fmt::format("rank {}: no gradient of {} for micro-batch {}", rank,
                                      value_at(value).name, micro_batch));
    }
    return sum;
  }

  void add_gradient(int value, int micro_batch, at::Tensor gradient) {
    finish_receive(Direction::kBackward, value, micro_batch);
    gradients.add(value, micro_batch, std::move(gradient));
  }

  // Puts what the message that brings `value` holds, if one is posted, into its places.
  void finish_receive(Direction direction, int value, int micro_batch) {
    auto arrived = transfers.finish_receive(direction, value, micro_batch);
    if (!arrived) return;
    for (size_t i = 0; i < arrived->tensors.size(); ++i) {
      const int item = arrived->message.items[i].value;
      at::Tensor& tensor = arrived->tensors[i];
      if (direction == Direction::kForward) {
        put_value(item, micro_batch, std::move(tensor));
      } else {
        if (made(Mistake::kScalePerStage)) tensor.div_(plan.micro_batch_sizes.size());
        gradients.start_from(item, micro_batch, std::move(tensor));
      }
    }
  }

  void post_receive(int index) {
    const Message& message = message_at(index);
    std::vector<at::Tensor> buffers;
    for (const MessageItem& item : message.items) {
      const Value& value = value_at(item.value);
      std::vector<int64_t> shape = value.shape;
      shape.insert(shape.begin(), plan.micro_batch_sizes[static_cast<size_t>(message.micro_batch)]);
      buffers.push_back(at::empty(shape, to_torch(value.dtype)));
    }
    transfers.post_receive(index, std::move(buffers));
    note_peak_outside_blocks(TrackingAllocator::current());
  }

  void post_send(int index) {
    const Message& message = message_at(index);
    std::vector<at::Tensor> tensors;
    for (const MessageItem& item : message.items) {
      tensors.push_back(message.direction == Direction::kForward
                            ? use_value(item.value, message.micro_batch)
                            : take_gradient(item.value, message.micro_batch));
    }
    transfers.post_send(index, std::move(tensors));
  }

  // Keeps the fullest moment of the step.
  void note_peak(const PeakMemory& moment) {
    if (moment.total > output.peak.total) output.peak = moment;
  }
  void note_peak_outside_blocks(Bytes total) {
    note_peak(
        {.total = total, .boundary = transfers.boundary(), .recompute = rebuilt, .workspace = {}});
  }

  enum class BlockRun { kForward, kForwardAgain, kBackward };

  // Measures what is done while it lives: the run of one block. `input_gradients`: what a backward
  // pass leaves behind.
  class InsideBlock {
   public:
    InsideBlock(State& state, BlockRun run, Bytes input_gradients = {})
        : state_(state),
          run_(run),
          input_gradients_(input_gradients),
          before_(TrackingAllocator::current()),
          start_(Clock::now()),
          cpu_start_(thread_cpu_time()) {
      TrackingAllocator::reset_mark();
      if (state.times != nullptr && state.first_block == Clock::time_point{}) {
        state.first_block = start_;
      }
    }
    InsideBlock(const InsideBlock&) = delete;
    InsideBlock& operator=(const InsideBlock&) = delete;
    ~InsideBlock() {
      StepOutput& output = state_.output;
      output.busy_cpu += thread_cpu_time() - cpu_start_;
      output.busy.count +=
          std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
      const Bytes peak = TrackingAllocator::mark();
      // What was kept goes while a backward pass runs: its gradients stand on all of it.
      const Bytes stays =
          run_ == BlockRun::kBackward ? before_ + input_gradients_ : TrackingAllocator::current();
      const Bytes more = run_ == BlockRun::kForwardAgain ? stays - before_ : Bytes{};
      state_.note_peak({.total = peak,
                        .boundary = state_.transfers.boundary(),
                        .recompute = state_.rebuilt + more,
                        .workspace = std::max(Bytes{}, peak - stays)});
    }

   private:
    State& state_;
    const BlockRun run_;
    const Bytes input_gradients_, before_;
    const Clock::time_point start_;
    const Nanos cpu_start_;
  };

  void forward(int stage, int micro_batch) {
    for (const int index : blocks_of_stage[static_cast<size_t>(stage)]) {
      const Block& block = block_at(index);
      // A replicated block may have run for another stage of this rank.
      if (values.contains({block.output, micro_batch})) {
        for (const int value : block.inputs) use_value(value, micro_batch);
        continue;
      }
      std::vector<at::Tensor> inputs;
      for (const int value : block.inputs) inputs.push_back(use_value(value, micro_batch));
      put_value(block.output, micro_batch, run_forward(index, micro_batch, std::move(inputs)));
      if (block.output == plan.graph.output) compute_loss(micro_batch);
    }
  }

  at::Tensor run_block_only(int index, std::span<const at::Tensor> inputs) {
    const InsideBlock inside(*this, BlockRun::kForward);
    return blocks.forward_only(index, inputs);
  }
  BlockRunner::Forward run_block_and_keep(int index, std::span<const at::Tensor> inputs,
                                          BlockRun run) {
    const InsideBlock inside(*this, run);
    return blocks.forward(index, inputs);
  }

  at::Tensor run_forward(int index, int micro_batch, std::vector<at::Tensor> inputs) {
    const Block& block = block_at(index);
    const bool keeps = mode == RunMode::kTrain && block.state != BlockState::kF;
    const bool again = keeps && plan.placement.recompute[static_cast<size_t>(index)];
    if (!keeps || again) {
      at::Tensor output = run_block_only(index, inputs);
      if (again) inputs_to_run_again[{index, micro_batch}] = std::move(inputs);
      return output;
    }
    BlockRunner::Forward result = run_block_and_keep(index, inputs, BlockRun::kForward);
    kept[{index, micro_batch}] = {.by_block = std::move(result.kept), .rebuilt = {}};
    return std::move(result.output);
  }

  void compute_loss(int micro_batch) {
    const at::Tensor prediction = use_value(plan.graph.output, micro_batch);
    const bool training = mode == RunMode::kTrain;
    TrackingAllocator::reset_mark();
    StepData::Loss loss = data.loss(prediction, micro_batch, training);
    note_peak_outside_blocks(TrackingAllocator::mark());
    output.sample_losses.resize(data.samples_in_batch());
    std::copy_n(loss.of_samples.const_data_ptr<float>(), loss.of_samples.numel(),
                output.sample_losses.data() + data.first_sample(micro_batch));
    if (training) gradients.add(plan.graph.output, micro_batch, std::move(loss.gradient));
  }

  Kept take_kept(int index, int micro_batch) {
    auto again = inputs_to_run_again.extract({index, micro_batch});
    if (!again.empty()) {
      const Bytes before = TrackingAllocator::current();
      BlockRunner::Forward result =
          run_block_and_keep(index, again.mapped(), BlockRun::kForwardAgain);
      result.output = at::Tensor();
      const Bytes more = TrackingAllocator::current() - before;
      rebuilt += more;
      return {.by_block = std::move(result.kept), .rebuilt = more};
    }
    auto node = kept.extract({index, micro_batch});
    check(!node.empty(), "a block's backward pass comes before its forward pass");
    return std::move(node.mapped());
  }

  void backward(ActionKind kind, int stage, int micro_batch) {
    const auto& of_stage = blocks_of_stage[static_cast<size_t>(stage)];
    for (auto it = of_stage.rbegin(); it != of_stage.rend(); ++it) {
      const int index = *it;
      const Block& block = block_at(index);
      if (block.state == BlockState::kF) continue;
      if (kind == ActionKind::kBackwardWeight) {
        if (block.trainable) backward_weights(index, micro_batch);
        continue;
      }
      BlockRunner::InputGradients result =
          backward_inputs(index, micro_batch, kind == ActionKind::kBackwardInput);
      for (size_t i = 0; i < result.size(); ++i) {
        if (!result[i].defined()) continue;
        add_gradient(block.inputs[i], micro_batch, std::exchange(result[i], {}));
      }
    }
  }

  Bytes input_gradients_of(const Block& block, int micro_batch) const {
    Bytes sum;
    for (const int input : block.inputs) {
      const Value& value = value_at(input);
      if (!value.carries_grad) continue;
      sum += value.bytes(plan.micro_batch_sizes[static_cast<size_t>(micro_batch)]);
    }
    return sum;
  }

  // B, or I where W is to come.
  BlockRunner::InputGradients backward_inputs(int index, int micro_batch, bool defers_weights) {
    const Block& block = block_at(index);
    at::Tensor gradient = take_gradient(block.output, micro_batch);
    Kept from_forward = take_kept(index, micro_batch);
    const bool deferred_here = defers_weights && block.trainable;
    BlockRunner::InputGradients result;
    {
      const InsideBlock inside(*this, BlockRun::kBackward, input_gradients_of(block, micro_batch));
      result = deferred_here ? blocks.backward_inputs(index, *from_forward.by_block, gradient)
                             : blocks.backward(index, std::move(from_forward.by_block), gradient);
    }
    if (deferred_here) {
      kept[{index, micro_batch}] = std::move(from_forward);
      deferred[{index, micro_batch}] = std::move(gradient);
    } else {
      rebuilt -= from_forward.rebuilt;
    }
    return result;
  }

  void backward_weights(int index, int micro_batch) {
    auto node = deferred.extract({index, micro_batch});
    check(!node.empty(), "W of a block comes before its I");
    Kept from_forward = take_kept(index, micro_batch);
    {
      const InsideBlock inside(*this, BlockRun::kBackward);
      blocks.backward_weights(index, std::move(from_forward.by_block), node.mapped());
    }
    rebuilt -= from_forward.rebuilt;
  }

  void note_time(int action, Clock::time_point start, Clock::time_point end) const {
    if (times != nullptr) (*times)[static_cast<size_t>(action)] = {.start = start, .end = end};
  }

  void run_timed(const Action& action, int index) {
    first_block = {};
    run(action);
    if (times == nullptr || is_message(action)) return;
    const Clock::time_point end = Clock::now();
    note_time(index, first_block == Clock::time_point{} ? end : first_block, end);
  }

  void run(const Action& action) {
    const bool forward_message =
        action.message >= 0 && message_at(action.message).direction == Direction::kForward;
    const bool evaluating = mode == RunMode::kEvaluate;
    switch (action.kind) {
      case ActionKind::kForward:
        forward(action.stage, action.micro_batch);
        break;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
      case ActionKind::kBackwardWeight:
        if (!evaluating) backward(action.kind, action.stage, action.micro_batch);
        break;
      case ActionKind::kSend:
        if (!evaluating || forward_message) post_send(action.message);
        break;
      case ActionKind::kReceive:
        if (!evaluating || forward_message) post_receive(action.message);
        break;
      case ActionKind::kReduce:
      case ActionKind::kStep:
        break;
    }
  }
};

RankExecutor::RankExecutor(const ExecutionPlan& plan, int rank, BlockRunner& blocks,
                           Communicator& comm, SampleSource& samples)
    : state_(std::make_unique<State>(plan, rank, blocks, comm, samples)) {}

RankExecutor::~RankExecutor() = default;

StepOutput RankExecutor::run(RunMode mode, int64_t step, std::span<const Draw> draws) {
  State& state = *state_;
  state.mode = mode;
  state.data.begin(draws, on_data);
  state.transfers.begin(step);
  state.output = {};
  if (mode == RunMode::kTrain) state.blocks.begin_step();
  ActionKind activity = ActionKind::kForward;
  state.transfers.before_wait = on_activity;
  state.transfers.after_wait = [&] {
    if (on_activity) on_activity(activity);
  };
  check(times == nullptr || times->size() == state.actions_here().size(),
        "times of actions need an entry for each");
  state.times = times;
  state.transfers.on_done = [&state](int message, TransferSpan span) {
    state.note_time(state.action_of_message[static_cast<size_t>(message)], span.start, span.end);
  };
  const auto& actions = state.actions_here();
  for (size_t i = 0; i < actions.size(); ++i) {
    const auto index = static_cast<int>(i);
    activity = actions[i].kind;
    if (on_action) on_action(actions[i], index);
    state.run_timed(actions[i], index);
  }
  state.transfers.finish_sends();
  if (times != nullptr) times->back().end = Clock::now();
  check(state.transfers.all_received(), "a received message was never used");
  check(state.values.empty(), "a value was left over at the end of the step");
  check(state.gradients.empty() && state.kept.empty() && state.deferred.empty() &&
            state.inputs_to_run_again.empty(),
        "a gradient, or what a block kept, was left over at the end of the step");
  return std::move(state.output);
}

}  // namespace stagecraft
