// SD 1.5's UNet and ControlNet as one block graph: the network that training runs.
//
// Topology after diffusers' UNet2DConditionModel and ControlNetModel (Rombach et al. 2022; Zhang et
// al. 2023). ControlNet is the UNet's encoder and middle once more, with a hint encoder in front
// and a zero convolution behind each skip.
#include <fmt/format.h>

#include "models/network/build.h"
#include "models/network/layers.h"
#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

DType activation_dtype(const std::string& precision) {
  if (precision == "fp32") return DType::kF32;
  if (precision == "fp16") return DType::kF16;
  if (precision == "bf16") return DType::kBF16;
  throw ConfigError("precision " + precision + ": give fp32, fp16 or bf16");
}

void check_arguments(const ModelConfig& model, int64_t width, int64_t height,
                     const TrainableConfig& trainable) {
  if (width <= 0 || height <= 0 || width % 64 != 0 || height % 64 != 0)
    throw ConfigError(
        fmt::format("size {} x {}: width and height must be multiples of 64", width, height));
  const UNetConfig& unet = model.unet;
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(fmt::format("model {}: unet: {}", model.name, what));
  };
  const size_t levels = unet.block_out_channels.size();
  if (levels == 0) refuse("block_out_channels is empty");
  if (unet.down_attention.size() != levels)
    refuse(fmt::format("{} levels in down_attention, {} in block_out_channels",
                       unet.down_attention.size(), levels));
  const int64_t factor = int64_t{1} << (levels - 1);
  if (width / kPixelsPerLatent % factor != 0 || height / kPixelsPerLatent % factor != 0)
    refuse(fmt::format("{} levels need width and height divisible by {}; got {} x {}", levels,
                       kPixelsPerLatent * factor, width, height));
  if (trainable.what != "controlnet" && trainable.what != "unet")
    throw ConfigError("trainable " + trainable.what + ": give controlnet or unet");
  if (trainable.what == "controlnet" &&
      model.controlnet.conditioning_embedding_out_channels.size() != 4)
    throw ConfigError(
        fmt::format("model {}: controlnet: conditioning_embedding_out_channels has {} entries; 4 "
                    "bring the hint "
                    "from pixels to latents",
                    model.name, model.controlnet.conditioning_embedding_out_channels.size()));
}

class TrainingGraphBuilder {
 public:
  TrainingGraphBuilder(const ModelConfig& model, int64_t width, int64_t height,
                       const TrainableConfig& trainable, DType activations)
      : config_(model.unet),
        control_config_(model.controlnet),
        trainable_(trainable),
        graph_(model.name, width, height, activations) {
    latents_ = graph_.add_input(kInputNoisyLatents, {config_.in_channels, height / kPixelsPerLatent,
                                                     width / kPixelsPerLatent});
    timesteps_ = graph_.add_input(kInputTimesteps, {}, DType::kI64);
    context_ = graph_.add_input(kInputContext,
                                {model.text_encoder.max_length, config_.cross_attention_dim});
    if (with_controlnet())
      hint_ = graph_.add_input(kInputHint, {control_config_.conditioning_channels, height, width});
  }

  BlockGraph build() {
    const int temb = add_time_embedding("unet");
    std::vector<int> skips;
    int h = add_conv_in("unet");
    skips.push_back(h);
    h = add_encoder("unet", h, temb, [&](int skip) { skips.push_back(skip); });
    h = add_middle("unet", h, temb);
    if (with_controlnet()) h = add_control(h, skips);
    h = add_decoder(h, skips, temb);
    return graph_.finish(add_out(graph_, place("unet", "out"), "",
                                 {.x = h, .out_channels = config_.out_channels, .norm = norm()}));
  }

 private:
  bool with_controlnet() const { return trainable_.what == "controlnet"; }
  NormSpec norm() const { return {.groups = config_.norm_num_groups, .eps = 1e-5}; }

  BlockPlace place(const std::string& part, const std::string& section,
                   BlockKind kind = BlockKind::kOther) const {
    bool trains = part == "controlnet";
    if (part == "unet")
      trains = !with_controlnet() ||
               (!trainable_.sd_locked && (section == "output" || section == "out"));
    return {.part = part, .section = section, .kind = kind, .trainable = trains};
  }

  int add_time_embedding(const std::string& part) {
    const int64_t channels = config_.block_out_channels[0];
    BlockBuilder block(graph_, place(part, "time_embed", BlockKind::kTimeEmbedding),
                       "time_embedding", {timesteps_});
    int t = block.timestep_embedding(0, channels);
    t = block.linear(t, "time_embedding.linear_1", 4 * channels);
    t = block.silu(t);
    block.linear(t, "time_embedding.linear_2", 4 * channels);
    return block.finish();
  }

  int add_conv_in(const std::string& part) {
    return add_conv(graph_, place(part, "input", BlockKind::kConvIn), "conv_in", latents_,
                    {.out_channels = config_.block_out_channels[0]});
  }

  // Calls `on_skip` with the value of each skip as soon as it is made.
  template <typename OnSkip>
  int add_encoder(const std::string& part, int h, int temb, OnSkip on_skip) {
    const size_t levels = config_.block_out_channels.size();
    for (size_t level = 0; level < levels; ++level) {
      const std::string prefix = fmt::format("down_blocks.{}.", level);
      for (int64_t layer = 0; layer < config_.layers_per_block; ++layer) {
        h = add_resnet(graph_, place(part, "input"), fmt::format("{}resnets.{}", prefix, layer),
                       {.x = h,
                        .temb = temb,
                        .out_channels = config_.block_out_channels[level],
                        .norm = norm()});
        if (config_.down_attention[level])
          h = add_attention(place(part, "input"), fmt::format("{}attentions.{}", prefix, layer), h);
        on_skip(h);
      }
      if (level + 1 == levels) break;
      const std::string name = prefix + "downsamplers.0";
      BlockBuilder block(graph_, place(part, "input", BlockKind::kDownsample), name, {h});
      block.conv(0, name + ".conv",
                 {.out_channels = config_.block_out_channels[level], .stride = 2});
      h = block.finish();
      on_skip(h);
    }
    return h;
  }

  int add_middle(const std::string& part, int h, int temb) {
    const BlockPlace middle = place(part, "middle");
    ResnetSpec spec = {
        .x = h, .temb = temb, .out_channels = config_.block_out_channels.back(), .norm = norm()};
    spec.x = add_resnet(graph_, middle, "mid_block.resnets.0", spec);
    spec.x = add_attention(middle, "mid_block.attentions.0", spec.x);
    return add_resnet(graph_, middle, "mid_block.resnets.1", spec);
  }

  int add_attention(const BlockPlace& where, const std::string& name, int h) {
    return add_transformer(graph_, where, name,
                           {.x = h,
                            .context = context_,
                            .heads = config_.num_heads,
                            .groups = config_.norm_num_groups});
  }

  // ControlNet, then the sums: replaces each skip by skip + residual and returns middle + residual.
  int add_control(int middle, std::vector<int>& skips) {
    std::vector<int> residuals;
    const auto add_zero_conv = [&](int h) {
      residuals.push_back(add_conv(graph_, place("controlnet", "zero_convs", BlockKind::kZeroConv),
                                   fmt::format("controlnet_down_blocks.{}", residuals.size()), h,
                                   zero_conv_of(h)));
    };
    const int temb = add_time_embedding("controlnet");
    int h = add_conv_in("controlnet");
    h = add_sum(graph_, "controlnet", "sum.hint", h, add_hint_encoder());
    add_zero_conv(h);
    h = add_encoder("controlnet", h, temb, add_zero_conv);
    h = add_middle("controlnet", h, temb);
    const int middle_residual =
        add_conv(graph_, place("controlnet", "middle_out", BlockKind::kZeroConv),
                 "controlnet_mid_block", h, zero_conv_of(h));
    if (!trainable_.only_mid_control)
      for (size_t i = 0; i < skips.size(); ++i)
        skips[i] = add_sum(graph_, "unet", fmt::format("sum.{}", i), skips[i], residuals[i]);
    return add_sum(graph_, "unet", "sum.mid", middle, middle_residual);
  }

  ConvShape zero_conv_of(int h) const {
    return {.out_channels = graph_.value(h).shape[0], .kernel = 1, .stride = 1, .padding = 0};
  }

  // SiLU behind every convolution but the last.
  int add_hint_encoder() {
    const std::vector<int64_t>& channels = control_config_.conditioning_embedding_out_channels;
    const auto add = [&](const std::string& module, int x, ConvShape shape, bool last) {
      const std::string name = "controlnet_cond_embedding." + module;
      BlockBuilder block(graph_, place("controlnet", "hint", BlockKind::kHintConv), name, {x});
      const int y = block.conv(0, name, shape);
      if (!last) block.silu(y);
      return block.finish();
    };
    int x = add("conv_in", hint_, {.out_channels = channels[0]}, false);
    for (size_t i = 0; i + 1 < channels.size(); ++i) {
      x = add(fmt::format("blocks.{}", 2 * i), x, {.out_channels = channels[i]}, false);
      x = add(fmt::format("blocks.{}", 2 * i + 1), x,
              {.out_channels = channels[i + 1], .stride = 2}, false);
    }
    return add("conv_out", x, {.out_channels = config_.block_out_channels[0]}, true);
  }

  // Takes the skips from the last to the first.
  int add_decoder(int h, std::vector<int> skips, int temb) {
    const size_t levels = config_.block_out_channels.size();
    for (size_t up = 0; up < levels; ++up) {
      const size_t level = levels - 1 - up;
      const std::string prefix = fmt::format("up_blocks.{}.", up);
      for (int64_t layer = 0; layer <= config_.layers_per_block; ++layer) {
        h = add_resnet(graph_, place("unet", "output"), fmt::format("{}resnets.{}", prefix, layer),
                       {.x = h,
                        .skip = skips.back(),
                        .temb = temb,
                        .out_channels = config_.block_out_channels[level],
                        .norm = norm()});
        skips.pop_back();
        if (config_.down_attention[level])
          h = add_attention(place("unet", "output"), fmt::format("{}attentions.{}", prefix, layer),
                            h);
      }
      if (level > 0) h = add_upsample(graph_, place("unet", "output"), prefix + "upsamplers.0", h);
    }
    return h;
  }

  const UNetConfig& config_;
  const ControlNetConfig& control_config_;
  TrainableConfig trainable_;
  GraphBuilder graph_;
  int latents_ = -1, timesteps_ = -1, context_ = -1, hint_ = -1;
};

}  // namespace

BlockGraph build_training_graph(const ModelConfig& model, int64_t width, int64_t height,
                                const TrainableConfig& trainable, const std::string& precision) {
  const DType activations = activation_dtype(precision);
  check_arguments(model, width, height, trainable);
  return TrainingGraphBuilder(model, width, height, trainable, activations).build();
}

}  // namespace stagecraft
