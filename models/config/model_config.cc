#include "models/config/model_config.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "partitioner/base/error.h"
#include "partitioner/base/strict_yaml.h"

namespace stagecraft {
namespace {

// Large enough for any model of this kind, small enough that products of a few of them fit in 64
// bits.
constexpr IntRange kChannels{1, 1 << 16};
constexpr IntRange kSmall{1, 1024};

// `channels` and what must divide each of them.
void check_divisible(YamlDocument& document, Fields& fields, const char* key,
                     const std::vector<int64_t>& channels, int64_t divisor,
                     const char* divisor_name) {
  for (const int64_t c : channels) {
    if (divisor > 0 && c % divisor != 0) {
      document.error(fields.mark(key), fmt::format("{}: {} is not a multiple of {} {}",
                                                   fields.name(key), c, divisor_name, divisor));
    }
  }
}

void check_length(YamlDocument& document, Fields& fields, const char* key, size_t length,
                  size_t min, size_t max) {
  if (length < min || length > max) {
    document.error(fields.mark(key), fmt::format("{} has {} entries, allowed are {} to {}",
                                                 fields.name(key), length, min, max));
  }
}

void read_unet(YamlDocument& document, const YamlNode& node, UNetConfig& unet) {
  Fields fields(document, node, "unet");
  fields.integer("in_channels", &unet.in_channels, kChannels);
  fields.integer("out_channels", &unet.out_channels, kChannels);
  fields.integers("block_out_channels", &unet.block_out_channels, kChannels);
  fields.booleans("down_attention", &unet.down_attention);
  fields.integer("layers_per_block", &unet.layers_per_block, {1, 16});
  fields.integer("num_heads", &unet.num_heads, kSmall);
  fields.integer("cross_attention_dim", &unet.cross_attention_dim, kChannels);
  fields.integer("norm_num_groups", &unet.norm_num_groups, kSmall);
  fields.finish();
  check_length(document, fields, "block_out_channels", unet.block_out_channels.size(), 2, 8);
  if (unet.down_attention.size() != unet.block_out_channels.size()) {
    document.error(
        fields.mark("down_attention"),
        fmt::format(
            "unet.down_attention has {} entries, block_out_channels has {}: one for each level",
            unet.down_attention.size(), unet.block_out_channels.size()));
  }
  check_divisible(document, fields, "block_out_channels", unet.block_out_channels,
                  unet.norm_num_groups, "norm_num_groups");
  check_divisible(document, fields, "block_out_channels", unet.block_out_channels, unet.num_heads,
                  "num_heads");
}

void read_controlnet(YamlDocument& document, const YamlNode& node, ControlNetConfig& controlnet) {
  Fields fields(document, node, "controlnet");
  fields.integer("conditioning_channels", &controlnet.conditioning_channels, {1, 64});
  fields.integers("conditioning_embedding_out_channels",
                  &controlnet.conditioning_embedding_out_channels, kChannels);
  fields.finish();
  // Three of its convolutions halve the picture: pixels become latents, whatever the UNet.
  check_length(document, fields, "conditioning_embedding_out_channels",
               controlnet.conditioning_embedding_out_channels.size(), 4, 4);
}

void read_vae(YamlDocument& document, const YamlNode& node, VaeConfig& vae) {
  Fields fields(document, node, "vae");
  fields.integer("in_channels", &vae.in_channels, {1, 64});
  fields.integer("latent_channels", &vae.latent_channels, {1, 64});
  fields.integers("block_out_channels", &vae.block_out_channels, kChannels);
  fields.integer("layers_per_block", &vae.layers_per_block, {1, 16});
  fields.integer("norm_num_groups", &vae.norm_num_groups, kSmall);
  fields.number("scaling_factor", &vae.scaling_factor, {1e-6, 1e6});
  fields.finish();
  check_length(document, fields, "block_out_channels", vae.block_out_channels.size(), 4, 4);
  check_divisible(document, fields, "block_out_channels", vae.block_out_channels,
                  vae.norm_num_groups, "norm_num_groups");
}

void read_text_encoder(YamlDocument& document, const YamlNode& node, TextEncoderConfig& text) {
  Fields fields(document, node, "text_encoder");
  fields.integer("vocab_size", &text.vocab_size, {1, 1 << 20});
  fields.integer("max_length", &text.max_length, {2, 4096});
  fields.integer("hidden_size", &text.hidden_size, kChannels);
  fields.integer("intermediate_size", &text.intermediate_size, kChannels);
  fields.integer("layers", &text.layers, {1, 256});
  fields.integer("heads", &text.heads, kSmall);
  fields.finish();
  check_divisible(document, fields, "hidden_size", {text.hidden_size}, text.heads, "heads");
}

void read_noise(YamlDocument& document, const YamlNode& node, NoiseConfig& noise) {
  Fields fields(document, node, "noise");
  fields.integer("timesteps", &noise.timesteps, {2, 100'000});
  fields.number("linear_start", &noise.linear_start, {1e-9, 0.999});
  fields.number("linear_end", &noise.linear_end, {1e-9, 0.999});
  fields.finish();
  if (noise.linear_end < noise.linear_start) {
    document.error(fields.mark("linear_end"),
                   fmt::format("noise.linear_end {} is below noise.linear_start {}",
                               noise.linear_end, noise.linear_start));
  }
}

}  // namespace

ModelConfig read_model_config(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) {
    throw InputError(
        ExitCode::kIo,
        fmt::format("{}: no such model file; `model` in a plan or training file is relative to "
                    "that file",
                    path));
  }
  YamlDocument document = YamlDocument::read(path);
  ModelConfig config;
  Fields fields(document, document.root());
  fields.string("name", &config.name);
  if (const YamlNode* node = fields.map("unet")) read_unet(document, *node, config.unet);
  if (const YamlNode* node = fields.map("controlnet")) {
    read_controlnet(document, *node, config.controlnet);
  }
  if (const YamlNode* node = fields.map("vae")) read_vae(document, *node, config.vae);
  if (const YamlNode* node = fields.map("text_encoder")) {
    read_text_encoder(document, *node, config.text_encoder);
  }
  if (const YamlNode* node = fields.map("noise")) read_noise(document, *node, config.noise);
  fields.finish();
  if (config.text_encoder.hidden_size != config.unet.cross_attention_dim) {
    document.error(
        fields.mark("text_encoder"),
        fmt::format("text_encoder.hidden_size {} differs from unet.cross_attention_dim {}",
                    config.text_encoder.hidden_size, config.unet.cross_attention_dim));
  }
  if (config.vae.latent_channels != config.unet.in_channels) {
    document.error(fields.mark("vae"),
                   fmt::format("vae.latent_channels {} differs from unet.in_channels {}",
                               config.vae.latent_channels, config.unet.in_channels));
  }
  document.throw_if_errors();
  return config;
}

std::vector<double> alphas_cumprod(const NoiseConfig& noise) {
  std::vector<double> out(static_cast<size_t>(noise.timesteps));
  const double start = std::sqrt(noise.linear_start);
  const double end = std::sqrt(noise.linear_end);
  const double last = static_cast<double>(noise.timesteps - 1);
  double product = 1.0;
  for (size_t t = 0; t < out.size(); ++t) {
    const double root = start + (end - start) * static_cast<double>(t) / last;
    product *= 1.0 - root * root;
    out[t] = product;
  }
  return out;
}

}  // namespace stagecraft
