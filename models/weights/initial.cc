#include "models/weights/initial.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "partitioner/base/error.h"
#include "partitioner/base/random.h"

namespace stagecraft {
namespace {

// Standard deviation of a matrix's or convolution's output, for inputs of standard deviation 1. The
// stream that norms see stays near a variance of 1e-3, so that their eps matters; queries and keys
// are large, so that attention is not flat. The first entry that the parameter's name holds counts.
struct Gain {
  std::string_view module;
  double gain;
};
constexpr std::array kGains = {
    // Into the stream: inputs, and the last layer of each residual branch.
    Gain{"controlnet_cond_embedding.conv_out", 0.05},
    Gain{"controlnet_cond_embedding.", 1.6},  // SiLU takes more than half of the variance
    Gain{"conv_in", 0.03},
    Gain{"conv1", 0.05},
    Gain{"conv2", 0.05},
    Gain{"time_emb_proj", 0.05},
    Gain{"proj_in", 0.05},
    Gain{"proj_out", 0.3},
    Gain{"to_out.0", 0.05},
    Gain{"ff.net.2", 0.05},
    Gain{"out_proj", 0.05},
    Gain{"fc2", 0.05},
    Gain{"token_embedding", 0.02},
    Gain{"position_embedding", 0.02},
    // Attention.
    Gain{"to_q", 1.5},
    Gain{"to_k", 1.5},
    Gain{"q_proj", 1.5},
    Gain{"k_proj", 1.5},
};
// Zero when training begins; small here, so that everything behind them is seen.
constexpr std::array<std::string_view, 2> kZeroConvolutions = {"controlnet_down_blocks.",
                                                               "controlnet_mid_block."};
constexpr double kZeroConvolutionGain = 0.2;
constexpr float kNormSpread = 0.1f;
constexpr float kBiasSpread = 0.02f;
constexpr float kSmallest = 1e-6f;  // instead of zero, relative to the spread

bool is_zero_convolution(std::string_view name) {
  return std::any_of(kZeroConvolutions.begin(), kZeroConvolutions.end(),
                     [&](auto prefix) { return name.find(prefix) != std::string_view::npos; });
}

double gain_of(std::string_view name) {
  if (is_zero_convolution(name)) return kZeroConvolutionGain;
  const auto* found = std::find_if(kGains.begin(), kGains.end(), [&](const Gain& g) {
    return name.find(g.module) != std::string_view::npos;
  });
  return found == kGains.end() ? 1.0 : found->gain;
}

// Uniform in center +- spread.
void fill_spread(uint64_t seed, const std::string& name, float center, float spread,
                 std::span<float> out) {
  const std::string purpose = "weight:" + name;
  fill_uniform({.seed = seed, .purpose = purpose}, out);
  for (float& x : out) {
    const float offset = 2.0f * x - 1.0f;
    x = center + spread * (offset == 0.0f ? kSmallest : offset);
  }
}

}  // namespace

int64_t fan_in(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

void fill_random_weight(uint64_t seed, const Param& param, std::span<float> out) {
  check(static_cast<int64_t>(out.size()) == param.elements(), "weight of another size");
  if (param.shape.size() < 2) {
    const bool bias = param.name.ends_with("bias");
    fill_spread(seed, param.name, bias ? 0.0f : 1.0f, bias ? kBiasSpread : kNormSpread, out);
    return;
  }
  // A uniform distribution in +-a has the variance a^2 / 3. Embeddings are looked up, not
  // multiplied.
  const bool lookup = param.name.ends_with("embedding.weight");
  const double inputs = lookup ? 1.0 : static_cast<double>(fan_in(param.shape));
  const auto spread = static_cast<float>(gain_of(param.name) * std::sqrt(3.0 / inputs));
  fill_spread(seed, param.name, 0.0f, spread, out);
}

ControlNetStart controlnet_start(std::string_view name) {
  constexpr std::string_view kHint = "controlnet_cond_embedding.";
  if (is_zero_convolution(name)) return ControlNetStart::kZero;
  if (!name.starts_with(kHint)) return ControlNetStart::kCopyOfUNet;
  const bool last = name.substr(kHint.size()).starts_with("conv_out.");
  return last ? ControlNetStart::kZero : ControlNetStart::kDefaultInit;
}

void fill_default_convolution(uint64_t seed, const std::string& name, int64_t fan_in,
                              std::span<float> out) {
  check(fan_in > 0, "convolution without inputs");
  fill_spread(seed, name, 0.0f, static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in))),
              out);
}

}  // namespace stagecraft
