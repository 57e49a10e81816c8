#include "models/network/other_parameters.h"

#include "models/network/build.h"

namespace stagecraft {
namespace {

constexpr int64_t kAnySide = 64;  // pixels; parameters do not depend on them

int64_t parameters_of(const BlockGraph& graph) {
  int64_t sum = 0;
  for (const Block& block : graph.blocks) sum += block.parameters();
  return sum;
}

}  // namespace

OtherParameters other_parameters(const ModelConfig& model) {
  return {.vae = parameters_of(build_vae_encoder(model, kAnySide, kAnySide)) +
                 parameters_of(build_vae_decoder(model, kAnySide, kAnySide)),
          .text_encoder = parameters_of(build_text_encoder(model))};
}

}  // namespace stagecraft
