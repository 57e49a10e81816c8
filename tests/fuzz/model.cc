// The model file, and the graphs that are built from one that is accepted.
#include "models/config/model_config.h"
#include "models/network/build.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

constexpr int64_t kPixels = 64;

void fuzz_model(std::string_view input) {
  try {
    const ModelConfig model = read_model_config(folder().write("model.yaml", input));
    for (const double alpha : alphas_cumprod(model.noise)) {
      require(alpha >= 0 && alpha < 1, "noise levels are in [0, 1)");
    }
    const BlockGraph graph = build_training_graph(model, kPixels, kPixels, {});
    require(!graph.blocks.empty() && graph.output >= 0, "a model has blocks and an output");
    build_vae_encoder(model, kPixels, kPixels);
    build_text_encoder(model);
  } catch (const ConfigError& error) {
    accept(error, {ExitCode::kConfigInvalid});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(model)
}  // namespace stagecraft::fuzz
