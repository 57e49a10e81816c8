// The layers that UNet, ControlNet and VAE share, as blocks; internal to models/network.
//
// Each appends one block named after the diffusers module and returns the value it makes. Shapes
// [C, H, W].
#pragma once

#include <cstdint>
#include <string>

#include "models/network/block_builder.h"

namespace stagecraft {

inline constexpr int64_t kPixelsPerLatent = 8;  // in each direction

struct NormSpec {
  int64_t groups = 32;
  double eps = 1e-5;
};

struct ResnetSpec {
  int x = -1;
  int skip = -1;  // concatenated behind x when given
  int temb = -1;  // time embedding before its SiLU; none in the VAE
  int64_t out_channels = 0;
  NormSpec norm{};
};
// norm, SiLU, conv, + time, norm, SiLU, conv, + input (through a 1x1 convolution when channels
// change).
int add_resnet(GraphBuilder& graph, BlockPlace place, const std::string& name,
               const ResnetSpec& spec);

struct TransformerSpec {
  int x = -1;
  int context = -1;
  int64_t heads = 8;
  int64_t groups = 32;
};
// GroupNorm (eps 1e-6), 1x1 convolution, self-attention, cross-attention, GEGLU feed-forward, 1x1
// convolution, + input.
int add_transformer(GraphBuilder& graph, BlockPlace place, const std::string& name,
                    const TransformerSpec& spec);

// Nearest-neighbour doubling and a 3x3 convolution.
int add_upsample(GraphBuilder& graph, BlockPlace place, const std::string& name, int x);

// GroupNorm, SiLU, 3x3 convolution: modules "<prefix>conv_norm_out" and "<prefix>conv_out"; named
// after the latter.
struct OutSpec {
  int x = -1;
  int64_t out_channels = 4;
  NormSpec norm{};
};
int add_out(GraphBuilder& graph, BlockPlace place, const std::string& prefix, const OutSpec& spec);

// One convolution that keeps its name.
int add_conv(GraphBuilder& graph, BlockPlace place, const std::string& name, int x,
             ConvShape shape);

// a + b, in that order.
int add_sum(GraphBuilder& graph, const std::string& part, const std::string& name, int a, int b);

}  // namespace stagecraft
