// The blocks of a training: each one LibTorch autograd's, on the rank's parameters.
#pragma once

#include "partitioner/graph/graph.h"
#include "pipeline/exec/block_runner.h"
#include "pipeline/exec/rank_parameters.h"

namespace stagecraft {

class AutogradRunner : public BlockRunner {
 public:
  // Both outlive this.
  AutogradRunner(const BlockGraph& graph, RankParameters& parameters)
      : graph_(graph), parameters_(parameters) {}

  void begin_step() override { parameters_.clear_gradients(); }
  at::Tensor forward_only(int block, std::span<const at::Tensor> inputs) override;
  Forward forward(int block, std::span<const at::Tensor> inputs) override;
  InputGradients backward(int block, std::unique_ptr<KeptByBlock> kept,
                          const at::Tensor& output_gradient) override;
  InputGradients backward_inputs(int block, const KeptByBlock& kept,
                                 const at::Tensor& output_gradient) override;
  void backward_weights(int block, std::unique_ptr<KeptByBlock> kept,
                        const at::Tensor& output_gradient) override;

 private:
  const Block& block_at(int block) const { return graph_.blocks[static_cast<size_t>(block)]; }
  void add_to_parameters(int block, std::vector<at::Tensor> gradients);

  const BlockGraph& graph_;
  RankParameters& parameters_;
};

}  // namespace stagecraft
