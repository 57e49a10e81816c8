#include "models/weights/save_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/weights/convert.h"
#include "models/weights/names.h"
#include "partitioner/base/error.h"
#include "partitioner/base/files.h"

namespace stagecraft {
namespace {

using Json = nlohmann::json;

// 512 pixels; diffusers' pipelines take it as the size of a picture when none is given.
constexpr int64_t kSampleSize = 64;

// What a ControlNet's and a UNet's configuration have in common; null is diffusers' "not used".
Json shared_config(const UNetConfig& unet) {
  std::vector<std::string> down;
  for (const bool attention : unet.down_attention) {
    down.emplace_back(attention ? "CrossAttnDownBlock2D" : "DownBlock2D");
  }
  return {
      {"_diffusers_version", "0.42.1"},
      {"act_fn", "silu"},
      {"addition_embed_type", nullptr},
      {"addition_embed_type_num_heads", 64},
      {"addition_time_embed_dim", nullptr},
      {"attention_head_dim", unet.num_heads},
      {"block_out_channels", unet.block_out_channels},
      {"class_embed_type", nullptr},
      {"cross_attention_dim", unet.cross_attention_dim},
      {"down_block_types", down},
      {"downsample_padding", 1},
      {"encoder_hid_dim", nullptr},
      {"encoder_hid_dim_type", nullptr},
      {"flip_sin_to_cos", true},
      {"freq_shift", 0},
      {"in_channels", unet.in_channels},
      {"layers_per_block", unet.layers_per_block},
      {"mid_block_scale_factor", 1},
      {"mid_block_type", "UNetMidBlock2DCrossAttn"},
      {"norm_eps", 1e-05},
      {"norm_num_groups", unet.norm_num_groups},
      {"num_attention_heads", nullptr},
      {"num_class_embeds", nullptr},
      {"only_cross_attention", false},
      {"projection_class_embeddings_input_dim", nullptr},
      {"resnet_time_scale_shift", "default"},
      {"transformer_layers_per_block", 1},
      {"upcast_attention", false},
      {"use_linear_projection", false},
  };
}

void add_controlnet(Json& config, const ControlNetConfig& controlnet) {
  config.update({
      {"_class_name", "ControlNetModel"},
      {"conditioning_channels", controlnet.conditioning_channels},
      {"conditioning_embedding_out_channels", controlnet.conditioning_embedding_out_channels},
      {"controlnet_conditioning_channel_order", "rgb"},
      {"global_pool_conditions", false},
  });
}

void add_unet(Json& config, const UNetConfig& unet) {
  std::vector<std::string> up;
  for (auto level = unet.down_attention.rbegin(); level != unet.down_attention.rend(); ++level) {
    up.emplace_back(*level ? "CrossAttnUpBlock2D" : "UpBlock2D");
  }
  config.update({
      {"_class_name", "UNet2DConditionModel"},
      {"attention_type", "default"},
      {"center_input_sample", false},
      {"class_embeddings_concat", false},
      {"conv_in_kernel", 3},
      {"conv_out_kernel", 3},
      {"cross_attention_norm", nullptr},
      {"dropout", 0.0},
      {"dual_cross_attention", false},
      {"mid_block_only_cross_attention", nullptr},
      {"out_channels", unet.out_channels},
      {"resnet_out_scale_factor", 1.0},
      {"resnet_skip_time_act", false},
      {"reverse_transformer_layers_per_block", nullptr},
      {"sample_size", kSampleSize},
      {"time_cond_proj_dim", nullptr},
      {"time_embedding_act_fn", nullptr},
      {"time_embedding_dim", nullptr},
      {"time_embedding_type", "positional"},
      {"timestep_post_act", nullptr},
      {"up_block_types", up},
  });
}

std::string weights_path(const SaveFolderOptions& options) {
  check(options.dtype == DType::kF32 || options.dtype == DType::kF16, "saved as fp32 or fp16 only");
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) {
    throw InputError(ExitCode::kIo, fmt::format("{}: cannot make the folder: {}", options.folder,
                                                error.message()));
  }
  return fmt::format("{}/diffusion_pytorch_model{}.safetensors", options.folder,
                     options.dtype == DType::kF16 ? ".fp16" : "");
}

std::vector<TensorInfo> table(const SaveFolderOptions& options, const std::vector<Param>& params) {
  std::vector<TensorInfo> tensors;
  for (const Param& param : params) {
    auto [part, name] = split_part(param.name);
    check(part == options.part, "parameter of another part");
    tensors.push_back({.name = std::move(name), .dtype = options.dtype, .shape = param.shape});
  }
  return tensors;
}

}  // namespace

std::string diffusers_config(const ModelConfig& model, const std::string& part) {
  check(part == "controlnet" || part == "unet", "only a ControlNet or a UNet is saved");
  Json config = shared_config(model.unet);
  if (part == "controlnet") {
    add_controlnet(config, model.controlnet);
  } else {
    add_unet(config, model.unet);
  }
  return config.dump(2) + "\n";
}

FolderWriter::FolderWriter(const SaveFolderOptions& options, const ModelConfig& model,
                           const std::vector<Param>& params)
    : options_(options),
      config_(diffusers_config(model, options.part)),
      // transformers and diffusers refuse files without this entry.
      writer_(weights_path(options), table(options, params), {{"format", "pt"}}) {}

void FolderWriter::write(const Param& param, std::span<const float> values) {
  const std::string name = split_part(param.name).second;
  std::span<const std::byte> bytes = std::as_bytes(values);
  bool finite = all_finite(values);
  if (options_.dtype == DType::kF16) {
    half_.resize(values.size());
    float_to_half(values, half_);
    for (const uint16_t h : half_) finite = finite && (h & 0x7c00u) != 0x7c00u;
    bytes = std::as_bytes(std::span(half_));
  }
  if (!finite) {
    throw InputError(ExitCode::kNonFinite,
                     fmt::format("{}: {} holds NaN, infinity or a number too large for {}",
                                 options_.folder, param.name, to_string(options_.dtype)));
  }
  writer_.write(name, bytes);
}

void FolderWriter::finish() {
  // Whoever finds weights finds their configuration.
  write_file_atomically(options_.folder + "/config.json", config_);
  writer_.finish();
}

}  // namespace stagecraft
