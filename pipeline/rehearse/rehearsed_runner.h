// The blocks of a rehearsal: each sleeps for its planned time and holds its planned bytes.
//
// Bytes are touched page by page, so that they are resident. Outputs and gradients are zeros of the
// real shapes, since they are sent. Holds what the memory model says (docs/memory-model.md), to the
// byte, if the executor frees what it says. Used by the executor's thread.
#pragma once

#include "partitioner/graph/graph.h"
#include "partitioner/simulate/costs.h"
#include "pipeline/exec/block_runner.h"
#include "pipeline/rehearse/pace.h"

namespace stagecraft {

// What the rank's blocks take. `graph` and `costs` outlive the runner.
struct RehearsedBlocks {
  const BlockGraph& graph;
  const BlockCosts& costs;
  int64_t micro_batch = 1;  // that the costs are for
  Bytes parameters;         // with gradients and moments
};

class RehearsedRunner : public BlockRunner {
 public:
  explicit RehearsedRunner(const RehearsedBlocks& blocks);

  void begin_step() override { pace_.begin_step(); }
  at::Tensor forward_only(int block, std::span<const at::Tensor> inputs) override;
  Forward forward(int block, std::span<const at::Tensor> inputs) override;
  InputGradients backward(int block, std::unique_ptr<KeptByBlock> kept,
                          const at::Tensor& output_gradient) override;
  InputGradients backward_inputs(int block, const KeptByBlock& kept,
                                 const at::Tensor& output_gradient) override;
  void backward_weights(int block, std::unique_ptr<KeptByBlock> kept,
                        const at::Tensor& output_gradient) override;

 private:
  struct Run;  // of one block
  InputGradients gradients_of_inputs(const Run& run, Nanos time);

  const RehearsedBlocks blocks_;
  const std::vector<at::Tensor> parameters_;
  Pace pace_;
};

}  // namespace stagecraft
