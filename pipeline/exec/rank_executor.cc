#include "pipeline/exec/rank_executor.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <numeric>
#include <utility>

#include "models/network/build.h"
#include "partitioner/base/error.h"
#include "partitioner/base/mistakes.h"
#include "partitioner/schedule/flow.h"
#include "pipeline/exec/block_autograd.h"
#include "pipeline/exec/tracking_allocator.h"

namespace stagecraft {
namespace {

// A value or block of one micro-batch.
using Key = std::pair<int, int>;

struct PendingReceive {
  int message;
  std::shared_ptr<Operation> operation;
  std::shared_ptr<std::vector<at::Tensor>> tensors;  // one per item
};

struct PendingSend {
  std::shared_ptr<Operation> operation;
  Bytes bytes;
};

struct HeldValue {
  at::Tensor tensor;
  int uses = 0;  // consumers and messages on this rank that are still to come
};

}  // namespace

struct RankExecutor::State {
  const ExecutionPlan plan;
  const int rank;
  RankParameters& parameters;
  Communicator& comm;
  SampleSource& samples;

  std::vector<std::vector<int>> blocks_of_stage;
  const std::vector<int> uses_of_value;
  std::vector<size_t> first_sample;  // by micro-batch, its place in the batch
  std::vector<double> alphas;

  // State of the step under way.
  RunMode mode = RunMode::kTrain;
  int64_t step = 0;
  std::span<const Draw> draws;
  std::map<Key, HeldValue> values;
  std::map<Key, at::Tensor> gradients;                         // sums so far, by value
  std::map<Key, BlockTape> tapes;                              // by block
  std::map<Key, std::vector<at::Tensor>> inputs_to_run_again;  // of recomputed blocks
  std::map<Key, at::Tensor> deferred;  // output gradients that W still needs, by block
  std::list<PendingReceive> receives;
  std::deque<PendingSend> sends;
  Bytes boundary;
  StepOutput output;
  ActionKind activity = ActionKind::kForward;
  std::function<void(ActionKind)> on_activity;
  std::function<void(std::string_view, int, const at::Tensor&)> on_data;

  State(const ExecutionPlan& the_plan, int the_rank, RankParameters& the_parameters,
        Communicator& the_comm, SampleSource& the_samples)
      : plan(the_plan),
        rank(the_rank),
        parameters(the_parameters),
        comm(the_comm),
        samples(the_samples),
        uses_of_value(uses_on_rank(plan.graph, plan.placement, plan.schedule, rank)),
        first_sample(plan.micro_batch_sizes.size()),
        alphas(alphas_cumprod(the_plan.model.noise)) {
    std::exclusive_scan(plan.micro_batch_sizes.begin(), plan.micro_batch_sizes.end(),
                        first_sample.begin(), size_t{0});
    for (int stage = 0; stage < plan.placement.stages(); ++stage) {
      blocks_of_stage.push_back(plan.placement.blocks_run_by(plan.graph, stage));
    }
  }

  const Block& block_at(int block) const { return plan.graph.blocks[static_cast<size_t>(block)]; }
  const Value& value_at(int value) const { return plan.graph.values[static_cast<size_t>(value)]; }
  int uses_of(int value) const { return uses_of_value[static_cast<size_t>(value)]; }
  int64_t samples_of(int micro_batch) const {
    return plan.micro_batch_sizes[static_cast<size_t>(micro_batch)];
  }
  std::span<const Draw> draws_of(int micro_batch) const {
    return draws.subspan(first_sample[static_cast<size_t>(micro_batch)],
                         static_cast<size_t>(samples_of(micro_batch)));
  }
  std::vector<int64_t> shape_of(int value, int micro_batch) const {
    std::vector<int64_t> shape{samples_of(micro_batch)};
    const auto& rest = value_at(value).shape;
    shape.insert(shape.end(), rest.begin(), rest.end());
    return shape;
  }

  // ---- values ----

  void put_value(int value, int micro_batch, at::Tensor tensor) {
    if (uses_of(value) == 0) return;
    values[{value, micro_batch}] = {std::move(tensor), uses_of(value)};
  }

  // One use of a value: made here, received, or a local input that is made now.
  at::Tensor use_value(int value, int micro_batch) {
    auto found = values.find({value, micro_batch});
    if (found == values.end()) {
      if (value_at(value).producer < 0) {
        put_value(value, micro_batch, local_input(value, micro_batch));
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

  at::Tensor local_input(int value, int micro_batch) {
    const std::string& name = value_at(value).name;
    const auto of = draws_of(micro_batch);
    const auto shown = [&](std::string_view what, at::Tensor tensor) {
      show(what, micro_batch, tensor);
      return tensor;
    };
    if (name == kInputContext) return shown("context", samples.context(of));
    if (name == kInputHint) return shown("hint", samples.hint(of));
    const at::Tensor timesteps =
        shown("timesteps", draw_timesteps(plan.seed, of, plan.model.noise.timesteps));
    if (name == kInputTimesteps) return timesteps;
    if (name == kInputNoisyLatents) {
      const at::Tensor latents = shown("latents", samples.latents(of));
      return add_noise(latents, shown("noise", noise_of(value, micro_batch)), timesteps, alphas);
    }
    throw InternalError(fmt::format("nobody makes the local input {}", name));
  }

  at::Tensor noise_of(int value, int micro_batch) const {
    return draw_noise(plan.seed, draws_of(micro_batch), value_at(value).shape);
  }

  void show(std::string_view what, int micro_batch, const at::Tensor& tensor) const {
    if (on_data) on_data(what, micro_batch, tensor);
  }

  // ---- messages ----

  void post_receive(int index) {
    const Message& message = plan.schedule.messages[static_cast<size_t>(index)];
    auto tensors = std::make_shared<std::vector<at::Tensor>>();
    std::vector<std::span<std::byte>> pieces;
    for (const MessageItem& item : message.items) {
      at::Tensor tensor = at::empty(shape_of(item.value, message.micro_batch), at::kFloat);
      pieces.push_back({static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
      tensors->push_back(std::move(tensor));
    }
    boundary += message.bytes;
    auto operation = comm.receive(message.src_rank, {.step = step, .message = index},
                                  std::move(pieces), tensors);
    receives.push_back({index, std::move(operation), std::move(tensors)});
  }

  // Waits for the posted message that brings `value`, if there is one, and puts its items in their
  // places.
  void finish_receive(Direction direction, int value, int micro_batch) {
    for (auto it = receives.begin(); it != receives.end(); ++it) {
      const Message& message = plan.schedule.messages[static_cast<size_t>(it->message)];
      if (message.direction != direction || message.micro_batch != micro_batch) continue;
      bool brings = false;
      for (const MessageItem& item : message.items) brings = brings || item.value == value;
      if (!brings) continue;
      wait_for(*it->operation, ActionKind::kReceive);
      const PendingReceive done = std::move(*it);
      receives.erase(it);
      boundary -= message.bytes;
      for (size_t i = 0; i < message.items.size(); ++i) {
        const int item = message.items[i].value;
        if (direction == Direction::kForward) {
          put_value(item, micro_batch, std::move((*done.tensors)[i]));
        } else {
          at::Tensor& partial = (*done.tensors)[i];
          if (made(Mistake::kScalePerStage)) partial.div_(plan.micro_batch_sizes.size());
          const Key place{made(Mistake::kFoldInWrongOrder) ? set_aside(item) : item, micro_batch};
          const bool fresh = gradients.emplace(place, std::move(partial)).second;
          check(fresh, "a partial gradient arrived after this rank had begun its own sum");
        }
      }
      return;
    }
  }

  void post_send(int index) {
    while (sends.size() >= static_cast<size_t>(kSendsInFlight)) finish_send();
    const Message& message = plan.schedule.messages[static_cast<size_t>(index)];
    auto tensors = std::make_shared<std::vector<at::Tensor>>();
    std::vector<std::span<const std::byte>> pieces;
    for (const MessageItem& item : message.items) {
      at::Tensor tensor = message.direction == Direction::kForward
                              ? use_value(item.value, message.micro_batch)
                              : take_gradient(item.value, message.micro_batch);
      check(tensor.is_contiguous(), "a tensor that is sent is not contiguous");
      pieces.push_back({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
      tensors->push_back(std::move(tensor));
    }
    boundary += message.bytes;
    sends.push_back({comm.send(message.dst_rank, {.step = step, .message = index},
                               std::move(pieces), std::move(tensors)),
                     message.bytes});
  }

  // Tells the watcher that the rank waits for a peer, and when it goes on.
  void wait_for(Operation& operation, ActionKind kind) {
    if (on_activity) on_activity(kind);
    operation.wait();
    if (on_activity) on_activity(activity);
  }

  void finish_send() {
    wait_for(*sends.front().operation, ActionKind::kSend);
    boundary -= sends.front().bytes;
    sends.pop_front();
  }

  // ---- gradients ----

  at::Tensor take_gradient(int value, int micro_batch) {
    if (!gradients.contains({value, micro_batch})) {
      finish_receive(Direction::kBackward, value, micro_batch);
    }
    if (made(Mistake::kFoldInWrongOrder)) add_what_was_set_aside(value, micro_batch);
    auto node = gradients.extract({value, micro_batch});
    if (node.empty()) {
      throw InternalError(fmt::format("rank {}: no gradient of {} for micro-batch {}", rank,
                                      value_at(value).name, micro_batch));
    }
    return std::move(node.mapped());
  }

  // One step of the left fold, last consumer first: what came from later consumers, plus
  // `gradient`.
  void fold_gradient(int value, int micro_batch, at::Tensor gradient) {
    finish_receive(Direction::kBackward, value, micro_batch);
    const auto [place, first] = gradients.try_emplace({value, micro_batch}, gradient);
    if (first) return;
    at::Tensor& sum = place->second;
    if (made(Mistake::kSkipGradientDropped)) sum = at::zeros_like(sum);
    const bool sole_owner = sum.use_count() == 1 && sum.storage().use_count() == 1;
    sum = sole_owner ? sum.add_(gradient) : sum.add(gradient);
  }

  // For Mistake::kFoldInWrongOrder alone.
  static int set_aside(int value) { return ~value; }
  void add_what_was_set_aside(int value, int micro_batch) {
    auto node = gradients.extract({set_aside(value), micro_batch});
    if (!node.empty()) fold_gradient(value, micro_batch, std::move(node.mapped()));
  }

  // ---- compute ----

  // Weights' gradients go into the persistent buffers right away: scratch of the block, not part of
  // what stays.
  static Bytes passing(const BlockGradients& gradients) {
    Bytes sum;
    for (const at::Tensor& gradient : gradients.params) {
      if (gradient.defined()) sum += {static_cast<int64_t>(gradient.nbytes())};
    }
    return sum;
  }
  template <typename Other>
  static Bytes passing(const Other&) {
    return {};
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
      output.peak = {.total = peak, .boundary = boundary, .workspace = peak - stays};
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

  // Mean squared error, mean over C, H, W per sample, then over the samples of the *global* batch:
  // the only place where anything is scaled by a number of samples.
  void compute_loss(int micro_batch) {
    at::NoGradGuard no_grad;
    const at::Tensor prediction_nchw = use_value(plan.graph.output, micro_batch);
    const at::Tensor target_nchw = noise_of(plan.graph.output, micro_batch);
    const at::Tensor error_nchw = prediction_nchw - target_nchw;
    const at::Tensor losses = error_nchw.square().mean(at::IntArrayRef{1, 2, 3});
    show("prediction", micro_batch, prediction_nchw);
    show("target", micro_batch, target_nchw);
    show("losses", micro_batch, losses);
    output.sample_losses.resize(draws.size());
    std::copy_n(losses.const_data_ptr<float>(), losses.numel(),
                output.sample_losses.data() + first_sample[static_cast<size_t>(micro_batch)]);
    if (mode != RunMode::kTrain) return;
    const size_t samples = made(Mistake::kMeanOfMeans)
                               ? plan.micro_batch_sizes.size() * draws_of(micro_batch).size()
                               : draws.size();
    const double scale =
        2.0 / (static_cast<double>(error_nchw[0].numel()) * static_cast<double>(samples));
    gradients[{plan.graph.output, micro_batch}] = error_nchw * scale;
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
        fold_gradient(block.inputs[i], micro_batch, std::exchange(result.inputs[i], {}));
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
    activity = action.kind;
    const bool forward_message =
        action.message >= 0 &&
        plan.schedule.messages[static_cast<size_t>(action.message)].direction ==
            Direction::kForward;
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
  const auto& sizes = state.plan.micro_batch_sizes;
  check(
      static_cast<int64_t>(draws.size()) == std::accumulate(sizes.begin(), sizes.end(), int64_t{0}),
      "the batch has another size than the plan's micro-batches together");
  state.mode = mode;
  state.step = step;
  state.draws = draws;
  state.output = {};
  state.on_activity = on_activity;
  state.on_data = on_data;
  if (mode == RunMode::kTrain) state.parameters.clear_gradients();
  const auto& actions = state.plan.schedule.ranks[static_cast<size_t>(state.rank)];
  for (size_t i = 0; i < actions.size(); ++i) {
    if (on_action) on_action(actions[i], static_cast<int>(i));
    state.run(actions[i]);
  }
  while (!state.sends.empty()) state.finish_send();
  check(state.receives.empty(), "a received message was never used");
  check(state.values.empty(), "a value was left over at the end of the step");
  check(state.gradients.empty() && state.tapes.empty() && state.deferred.empty() &&
            state.inputs_to_run_again.empty(),
        "a gradient or tape was left over at the end of the step");
  return std::move(state.output);
}

}  // namespace stagecraft
