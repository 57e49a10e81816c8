#include "pipeline/exec/rank_executor.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/base/mistakes.h"
#include "partitioner/schedule/flow.h"
#include "pipeline/exec/block_autograd.h"
#include "pipeline/exec/gradient_sums.h"
#include "pipeline/exec/tracking_allocator.h"
#include "pipeline/exec/transfers.h"

namespace stagecraft {
namespace {

// A value or block of one micro-batch.
using Key = std::pair<int, int>;

struct HeldValue {
  at::Tensor tensor;
  int uses = 0;  // consumers and messages on this rank that are still to come
};

// Weights' gradients go into the persistent buffers right away: scratch of the block, not part of
// what stays.
Bytes passing(const BlockGradients& gradients) {
  Bytes sum;
  for (const at::Tensor& gradient : gradients.params) {
    if (gradient.defined()) sum += {static_cast<int64_t>(gradient.nbytes())};
  }
  return sum;
}
template <typename Other>
Bytes passing(const Other&) {
  return {};
}

}  // namespace

struct RankExecutor::State {
  const ExecutionPlan plan;
  const int rank;
  RankParameters& parameters;

  std::vector<std::vector<int>> blocks_of_stage;
  const std::vector<int> uses_of_value;

  // State of the step under way.
  RunMode mode = RunMode::kTrain;
  StepData data;
  Transfers transfers;
  std::map<Key, HeldValue> values;
  GradientSums gradients;                                      // by value
  std::map<Key, BlockTape> tapes;                              // by block
  std::map<Key, std::vector<at::Tensor>> inputs_to_run_again;  // of recomputed blocks
  std::map<Key, at::Tensor> deferred;  // output gradients that W still needs, by block
  StepOutput output;

  State(const ExecutionPlan& the_plan, int the_rank, RankParameters& the_parameters,
        Communicator& comm, SampleSource& samples)
      : plan(the_plan),
        rank(the_rank),
        parameters(the_parameters),
        uses_of_value(uses_on_rank(plan.graph, plan.placement, plan.schedule, rank)),
        data(plan, samples),
        transfers(plan.schedule, comm) {
    for (int stage = 0; stage < plan.placement.stages(); ++stage) {
      blocks_of_stage.push_back(plan.placement.blocks_run_by(plan.graph, stage));
    }
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
        put_value(value, micro_batch, data.local_input(value, micro_batch));
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
      std::vector<int64_t> shape = value_at(item.value).shape;
      shape.insert(shape.begin(), plan.micro_batch_sizes[static_cast<size_t>(message.micro_batch)]);
      buffers.push_back(at::empty(shape, at::kFloat));
    }
    transfers.post_receive(index, std::move(buffers));
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

  template <typename Work>
  auto inside_block(Work&& work) {
    const Bytes before = TrackingAllocator::current();
    TrackingAllocator::reset_mark();
    const auto start = std::chrono::steady_clock::now();
    auto result = work();
    output.busy.count += std::chrono::duration_cast<std::chrono::nanoseconds>(
                             std::chrono::steady_clock::now() - start)
                             .count();
    const Bytes peak = TrackingAllocator::mark();
    if (peak > output.peak.total) {
      const Bytes stays = std::max(before, TrackingAllocator::current() - passing(result));
      output.peak = {.total = peak, .boundary = transfers.boundary(), .workspace = peak - stays};
    }
    return result;
  }

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

  at::Tensor run_forward(int index, int micro_batch, std::vector<at::Tensor> inputs) {
    const Block& block = block_at(index);
    const auto& weights = parameters.weights_of(index);
    const bool keeps = mode == RunMode::kTrain && block.state != BlockState::kF;
    if (!keeps) return inside_block([&] { return forward_only(block, inputs, weights); });
    if (plan.placement.recompute[static_cast<size_t>(index)]) {
      at::Tensor result = inside_block([&] { return forward_only(block, inputs, weights); });
      inputs_to_run_again[{index, micro_batch}] = std::move(inputs);
      return result;
    }
    BlockForward result = inside_block([&] {
      return forward_with_tape(block, inputs, weights, inputs_with_gradient(plan.graph, block));
    });
    tapes[{index, micro_batch}] = std::move(result.tape);
    return std::move(result.output);
  }

  void compute_loss(int micro_batch) {
    const at::Tensor prediction = use_value(plan.graph.output, micro_batch);
    const bool training = mode == RunMode::kTrain;
    StepData::Loss loss = data.loss(prediction, micro_batch, training);
    output.sample_losses.resize(data.samples_in_batch());
    std::copy_n(loss.of_samples.const_data_ptr<float>(), loss.of_samples.numel(),
                output.sample_losses.data() + data.first_sample(micro_batch));
    if (training) gradients.add(plan.graph.output, micro_batch, std::move(loss.gradient));
  }

  BlockTape take_tape(int index, int micro_batch) {
    auto again = inputs_to_run_again.extract({index, micro_batch});
    if (!again.empty()) {
      const Block& block = block_at(index);
      return inside_block([&] {
        return forward_with_tape(block, again.mapped(), parameters.weights_of(index),
                                 inputs_with_gradient(plan.graph, block))
            .tape;
      });
    }
    auto node = tapes.extract({index, micro_batch});
    check(!node.empty(), "a block's backward pass comes before its forward pass");
    return std::move(node.mapped());
  }

  void hand_out(int index, int micro_batch, BlockGradients result) {
    const Block& block = block_at(index);
    for (size_t i = 0; i < result.inputs.size(); ++i) {
      if (result.inputs[i].defined()) {
        add_gradient(block.inputs[i], micro_batch, std::exchange(result.inputs[i], {}));
      }
    }
    for (size_t i = 0; i < result.params.size(); ++i) {
      if (result.params[i].defined()) {
        parameters.add_gradient(index, static_cast<int>(i), std::exchange(result.params[i], {}));
      }
    }
  }

  void backward(ActionKind kind, int stage, int micro_batch) {
    const auto& blocks = blocks_of_stage[static_cast<size_t>(stage)];
    for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
      const int index = *it;
      const Block& block = block_at(index);
      if (block.state == BlockState::kF) continue;
      const Key key{index, micro_batch};
      if (kind == ActionKind::kBackwardWeight) {
        if (!block.trainable) continue;
        auto node = deferred.extract(key);
        check(!node.empty(), "W of a block comes before its I");
        at::Tensor gradient = std::move(node.mapped());
        BlockTape tape = take_tape(index, micro_batch);
        hand_out(index, micro_batch,
                 inside_block([&] { return backward_weights(std::move(tape), gradient); }));
        continue;
      }
      at::Tensor gradient = take_gradient(block.output, micro_batch);
      BlockTape tape = take_tape(index, micro_batch);
      if (kind == ActionKind::kBackwardInput && block.trainable) {
        hand_out(index, micro_batch, inside_block([&] { return backward_inputs(tape, gradient); }));
        tapes[key] = std::move(tape);
        deferred[key] = std::move(gradient);
      } else {
        hand_out(index, micro_batch,
                 inside_block([&] { return backward_block(std::move(tape), gradient); }));
      }
    }
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

RankExecutor::RankExecutor(const ExecutionPlan& plan, int rank, RankParameters& parameters,
                           Communicator& comm, SampleSource& samples)
    : state_(std::make_unique<State>(plan, rank, parameters, comm, samples)) {}

RankExecutor::~RankExecutor() = default;

StepOutput RankExecutor::run(RunMode mode, int64_t step, std::span<const Draw> draws) {
  State& state = *state_;
  state.mode = mode;
  state.data.begin(draws, on_data);
  state.transfers.begin(step);
  state.output = {};
  if (mode == RunMode::kTrain) state.parameters.clear_gradients();
  ActionKind activity = ActionKind::kForward;
  state.transfers.before_wait = on_activity;
  state.transfers.after_wait = [&] {
    if (on_activity) on_activity(activity);
  };
  const auto& actions = state.plan.schedule.ranks[static_cast<size_t>(state.rank)];
  for (size_t i = 0; i < actions.size(); ++i) {
    activity = actions[i].kind;
    if (on_action) on_action(actions[i], static_cast<int>(i));
    state.run(actions[i]);
  }
  state.transfers.finish_sends();
  check(state.transfers.all_received(), "a received message was never used");
  check(state.values.empty(), "a value was left over at the end of the step");
  check(state.gradients.empty() && state.tapes.empty() && state.deferred.empty() &&
            state.inputs_to_run_again.empty(),
        "a gradient or tape was left over at the end of the step");
  return std::move(state.output);
}

}  // namespace stagecraft
