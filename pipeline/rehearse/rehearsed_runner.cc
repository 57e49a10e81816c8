#include "pipeline/rehearse/rehearsed_runner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "models/torch/runner.h"

namespace stagecraft {
namespace {

// Resident and unread. In pieces of one size, which the heap can use again for any block: whole
// ones of hundreds of MiB, freed out of order, leave gaps that make the process twice as large.
std::vector<at::Tensor> hold(Bytes bytes) {
  constexpr int64_t kPage = 4096, kPiece = int64_t{2} << 20;
  std::vector<at::Tensor> held;
  for (int64_t left = bytes.count; left > 0; left -= kPiece) {
    const int64_t size = std::min(left, kPiece);
    auto* data = static_cast<volatile uint8_t*>(
        held.emplace_back(at::empty({size}, at::kByte)).mutable_data_ptr());
    for (int64_t at = 0; at < size; at += kPage) data[at] = 1;
    data[size - 1] = 1;
  }
  return held;
}

struct KeptBytes final : KeptByBlock {
  std::vector<at::Tensor> saved;
  std::vector<at::Tensor> values;  // inputs and output
};

at::Tensor zeros_of(const Value& value, int64_t samples) {
  std::vector<int64_t> shape = value.shape;
  shape.insert(shape.begin(), samples);
  return at::zeros(shape, to_torch(value.dtype));
}

}  // namespace

struct RehearsedRunner::Run {
  Run(const RehearsedBlocks& the_blocks, int block, int64_t the_samples)
      : blocks(the_blocks),
        block(the_blocks.graph.blocks[static_cast<size_t>(block)]),
        cost(*the_blocks.costs[static_cast<size_t>(block)]),
        samples(the_samples) {}

  Nanos scaled(Nanos time) const { return {scale_to(time.count, samples, blocks.micro_batch)}; }
  Bytes scaled(Bytes bytes) const { return {scale_to(bytes.count, samples, blocks.micro_batch)}; }
  const Value& value(int index) const { return blocks.graph.values[static_cast<size_t>(index)]; }

  const RehearsedBlocks& blocks;
  const Block& block;
  const BlockCost& cost;
  const int64_t samples;
  const Deadlines::Clock::time_point start = Deadlines::Clock::now();
};

RehearsedRunner::RehearsedRunner(const RehearsedBlocks& blocks)
    : blocks_(blocks), parameters_(hold(blocks.parameters)) {}

at::Tensor RehearsedRunner::forward_only(int block, std::span<const at::Tensor> inputs) {
  const Run run(blocks_, block, inputs.front().size(0));
  // What a block would save is scratch where it is not kept.
  Bytes scratch = run.scaled(run.cost.workspace_forward);
  if (run.block.state != BlockState::kF) scratch += run.scaled(run.cost.saved_internal);
  at::Tensor output = zeros_of(run.value(run.block.output), run.samples);
  const auto held = hold(scratch);
  pace_.sleep(run.start, run.scaled(run.cost.forward.median));
  return output;
}

BlockRunner::Forward RehearsedRunner::forward(int block, std::span<const at::Tensor> inputs) {
  const Run run(blocks_, block, inputs.front().size(0));
  auto kept = std::make_unique<KeptBytes>();
  kept->saved = hold(run.scaled(run.cost.saved_internal));
  at::Tensor output = zeros_of(run.value(run.block.output), run.samples);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool keeps = i < run.cost.keeps_input.size() && run.cost.keeps_input[i];
    if (keeps) kept->values.push_back(inputs[i]);
  }
  if (run.cost.keeps_output) kept->values.push_back(output);
  const auto held = hold(run.scaled(run.cost.workspace_forward));
  pace_.sleep(run.start, run.scaled(run.cost.forward.median));
  return {.output = std::move(output), .kept = std::move(kept)};
}

BlockRunner::InputGradients RehearsedRunner::backward(int block, std::unique_ptr<KeptByBlock> kept,
                                                      const at::Tensor& output_gradient) {
  const std::unique_ptr<KeptByBlock> until_the_end = std::move(kept);
  const Run run(blocks_, block, output_gradient.size(0));
  return gradients_of_inputs(
      run, run.scaled(run.cost.backward_input.median + run.cost.backward_weight.median));
}

BlockRunner::InputGradients RehearsedRunner::backward_inputs(int block, const KeptByBlock& /*kept*/,
                                                             const at::Tensor& output_gradient) {
  const Run run(blocks_, block, output_gradient.size(0));
  return gradients_of_inputs(run, run.scaled(run.cost.backward_input.median));
}

void RehearsedRunner::backward_weights(int block, std::unique_ptr<KeptByBlock> kept,
                                       const at::Tensor& output_gradient) {
  const std::unique_ptr<KeptByBlock> until_the_end = std::move(kept);
  const Run run(blocks_, block, output_gradient.size(0));
  const auto held = hold(run.scaled(run.cost.workspace_backward));
  pace_.sleep(run.start, run.scaled(run.cost.backward_weight.median));
}

BlockRunner::InputGradients RehearsedRunner::gradients_of_inputs(const Run& run, Nanos time) {
  InputGradients gradients(run.block.inputs.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Value& value = run.value(run.block.inputs[i]);
    if (value.carries_grad) gradients[i] = zeros_of(value, run.samples);
  }
  const auto held = hold(run.scaled(run.cost.workspace_backward));
  pace_.sleep(run.start, time);
  return gradients;
}

}  // namespace stagecraft
