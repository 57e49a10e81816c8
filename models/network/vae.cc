// The VAE (AutoencoderKL) as two chains of blocks, after diffusers' Encoder and Decoder. fp32,
// frozen.
#include <fmt/format.h>

#include "models/network/build.h"
#include "models/network/layers.h"
#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr double kNormEps = 1e-6;

class VaeBuilder {
 public:
  VaeBuilder(const ModelConfig& model, int64_t width, int64_t height)
      : config_(model.vae),
        width_(width),
        height_(height),
        graph_(model.name, width, height, DType::kF32) {
    if (width <= 0 || height <= 0 || width % kPixelsPerLatent != 0 ||
        height % kPixelsPerLatent != 0)
      throw ConfigError(fmt::format("size {} x {}: the VAE needs multiples of {}", width, height,
                                    kPixelsPerLatent));
    if (config_.block_out_channels.size() != 4)
      throw ConfigError(
          fmt::format("model {}: vae: block_out_channels has {} levels; 4 bring pixels to latents",
                      model.name, config_.block_out_channels.size()));
  }

  BlockGraph build_encoder() {
    const std::vector<int64_t>& channels = config_.block_out_channels;
    int h = graph_.add_input("input.image", {config_.in_channels, height_, width_});
    h = add_conv(graph_, place("encoder", BlockKind::kConvIn), "encoder.conv_in", h,
                 {.out_channels = channels[0]});
    for (size_t level = 0; level < channels.size(); ++level) {
      const std::string prefix = fmt::format("encoder.down_blocks.{}.", level);
      for (int64_t layer = 0; layer < config_.layers_per_block; ++layer)
        h = add_layer("encoder", fmt::format("{}resnets.{}", prefix, layer), h, channels[level]);
      if (level + 1 < channels.size()) h = add_downsample(prefix + "downsamplers.0", h);
    }
    h = add_middle("encoder", h);
    const int64_t moments = 2 * config_.latent_channels;
    h = add_out(graph_, place("encoder"), "encoder.",
                {.x = h, .out_channels = moments, .norm = norm()});
    h = add_conv(graph_, place("quant"), "quant_conv", h, one_by_one(moments));
    return graph_.finish(h);
  }

  BlockGraph build_decoder() {
    const std::vector<int64_t>& channels = config_.block_out_channels;
    int h = graph_.add_input("input.latents", {config_.latent_channels, height_ / kPixelsPerLatent,
                                               width_ / kPixelsPerLatent});
    h = add_conv(graph_, place("post_quant"), "post_quant_conv", h,
                 one_by_one(config_.latent_channels));
    h = add_conv(graph_, place("decoder", BlockKind::kConvIn), "decoder.conv_in", h,
                 {.out_channels = channels.back()});
    h = add_middle("decoder", h);
    for (size_t up = 0; up < channels.size(); ++up) {
      const int64_t out_channels = channels[channels.size() - 1 - up];
      const std::string prefix = fmt::format("decoder.up_blocks.{}.", up);
      for (int64_t layer = 0; layer <= config_.layers_per_block; ++layer)
        h = add_layer("decoder", fmt::format("{}resnets.{}", prefix, layer), h, out_channels);
      if (up + 1 < channels.size())
        h = add_upsample(graph_, place("decoder"), prefix + "upsamplers.0", h);
    }
    return graph_.finish(add_out(graph_, place("decoder"), "decoder.",
                                 {.x = h, .out_channels = config_.in_channels, .norm = norm()}));
  }

 private:
  NormSpec norm() const { return {.groups = config_.norm_num_groups, .eps = kNormEps}; }

  static BlockPlace place(const std::string& section, BlockKind kind = BlockKind::kOther) {
    return {.part = "vae", .section = section, .kind = kind, .trainable = false};
  }

  static ConvShape one_by_one(int64_t channels) {
    return {.out_channels = channels, .kernel = 1, .stride = 1, .padding = 0};
  }

  int add_layer(const std::string& section, const std::string& name, int x, int64_t out_channels) {
    return add_resnet(graph_, place(section), name,
                      {.x = x, .out_channels = out_channels, .norm = norm()});
  }

  // Pads on the right and below only, where the UNet pads all around.
  int add_downsample(const std::string& name, int x) {
    BlockBuilder block(graph_, place("encoder", BlockKind::kDownsample), name, {x});
    const int padded = block.pad_right_bottom(0);
    block.conv(padded, name + ".conv",
               {.out_channels = block.shape(0)[0], .kernel = 3, .stride = 2, .padding = 0});
    return block.finish();
  }

  int add_middle(const std::string& section, int h) {
    const int64_t channels = config_.block_out_channels.back();
    const std::string prefix = section + ".mid_block.";
    h = add_layer(section, prefix + "resnets.0", h, channels);
    h = add_attention(section, prefix + "attentions.0", h);
    return add_layer(section, prefix + "resnets.1", h, channels);
  }

  // One head over all channels, projections with bias.
  int add_attention(const std::string& section, const std::string& name, int x) {
    BlockBuilder block(graph_, place(section, BlockKind::kTransformer), name, {x});
    const std::vector<int64_t> image = block.shape(0);
    int h = block.group_norm(0, name + ".group_norm", config_.norm_num_groups, kNormEps);
    h = block.to_sequence(h);
    const int q = block.linear(h, name + ".to_q", image[0]);
    const int k = block.linear(h, name + ".to_k", image[0]);
    const int v = block.linear(h, name + ".to_v", image[0]);
    h = block.attention({.q = q, .k = k, .v = v}, 1);
    h = block.linear(h, name + ".to_out.0", image[0]);
    h = block.to_image(h, image[1], image[2]);
    block.add(h, 0);
    return block.finish();
  }

  const VaeConfig& config_;
  int64_t width_, height_;
  GraphBuilder graph_;
};

}  // namespace

BlockGraph build_vae_encoder(const ModelConfig& model, int64_t width, int64_t height) {
  return VaeBuilder(model, width, height).build_encoder();
}

BlockGraph build_vae_decoder(const ModelConfig& model, int64_t width, int64_t height) {
  return VaeBuilder(model, width, height).build_decoder();
}

}  // namespace stagecraft
