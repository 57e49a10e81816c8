// Values of parameters that no file holds: seeded random weights, and a ControlNet that starts from
// a UNet.
//
// Pure functions of (seed, name, shape); any thread. Internal to models/weights.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

// What random_weights() gives; see docs/weights.md for the rule and its table of scales.
void fill_random_weight(uint64_t seed, const Param& param, std::span<float> out);

// How a new ControlNet's parameter begins (diffusers' ControlNetModel.from_unet, cldm's
// tool_add_control).
enum class ControlNetStart { kCopyOfUNet, kZero, kDefaultInit };
ControlNetStart controlnet_start(std::string_view name);  // without "controlnet."

// PyTorch's default for a convolution's weight and bias: uniform in +-1/sqrt(fan_in).
void fill_default_convolution(uint64_t seed, const std::string& name, int64_t fan_in,
                              std::span<float> out);

// Inputs of one output element: the product of all dimensions but the first. 1 for vectors.
int64_t fan_in(const std::vector<int64_t>& shape);

}  // namespace stagecraft
