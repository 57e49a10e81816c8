#include "partitioner/plan/train_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <tuple>
#include <utility>

#include "partitioner/base/strict_yaml.h"
#include "partitioner/plan/train_fields.h"

namespace stagecraft {
namespace {

constexpr int64_t kMaxPixels = 16384;
constexpr int64_t kMaxMicroBatches = 1024;  // bounds the length of schedules

void read_optimizer(YamlDocument& document, const YamlNode& node, OptimizerConfig& optimizer) {
  Fields fields(document, node, "optimizer");
  fields.number("learning_rate", &optimizer.learning_rate, {0.0, 1e3}, kOptional);
  fields.number("beta1", &optimizer.beta1, {0.0, 0.999999}, kOptional);
  fields.number("beta2", &optimizer.beta2, {0.0, 0.999999999}, kOptional);
  fields.number("eps", &optimizer.eps, {1e-30, 1.0}, kOptional);
  fields.number("weight_decay", &optimizer.weight_decay, {0.0, 1e3}, kOptional);
  fields.integer("warmup_steps", &optimizer.warmup_steps, {0, 1'000'000'000}, kOptional);
  fields.number("max_grad_norm", &optimizer.max_grad_norm, {0.0, 1e12}, kOptional);
  fields.finish();
}

void read_trainable(YamlDocument& document, const YamlNode& node, TrainableConfig& trainable) {
  Fields fields(document, node, "trainable");
  fields.string("what", &trainable.what, kOptional, {"controlnet", "unet"});
  fields.boolean("sd_locked", &trainable.sd_locked, kOptional);
  fields.boolean("only_mid_control", &trainable.only_mid_control, kOptional);
  fields.finish();
}

// Faults that only the values together can have.
std::string combination_fault(const TrainConfig& config) {
  if (config.micro_batch > config.batch) {
    return fmt::format("micro_batch {} is larger than batch {}", config.micro_batch, config.batch);
  }
  const int64_t count = (config.batch + config.micro_batch - 1) / config.micro_batch;
  if (count > kMaxMicroBatches) {
    return fmt::format("micro_batch {} cuts batch {} into {} micro-batches, allowed are {}",
                       config.micro_batch, config.batch, count, kMaxMicroBatches);
  }
  if (config.trainable.what == "unet" &&
      (!config.trainable.sd_locked || config.trainable.only_mid_control)) {
    return "trainable.what: unet trains the whole UNet without a ControlNet; leave sd_locked and "
           "only_mid_control out";
  }
  return "";
}

}  // namespace

void read_planned_fields(YamlDocument& document, Fields& fields, const std::string& file,
                         TrainConfig& config) {
  fields.string("model", &config.model);
  const std::filesystem::path model(config.model);
  if (!config.model.empty() && model.is_relative()) {
    config.model = (std::filesystem::path(file).parent_path() / model).lexically_normal().string();
  }
  const auto pixels = [&](const char* key, int64_t* out) {
    fields.integer(key, out, {64, kMaxPixels}, kOptional);
    if (*out % 64 != 0) {
      document.error(fields.mark(key),
                     fmt::format("{} must be a multiple of 64, got {}", fields.name(key), *out));
    }
  };
  pixels("width", &config.width);
  pixels("height", &config.height);
  fields.string("precision", &config.precision, kOptional, {"fp32", "fp16", "bf16"});
  fields.integer("batch", &config.batch, {1, 65536}, kOptional);
  fields.integer("micro_batch", &config.micro_batch, {1, 65536}, kOptional);
  if (const YamlNode* node = fields.map("trainable", kOptional)) {
    read_trainable(document, *node, config.trainable);
  }
  if (const std::string fault = combination_fault(config); !fault.empty()) {
    document.error(fields.mark(fault.starts_with("micro") ? "micro_batch" : "trainable"), fault);
  }
}

TrainConfig read_train_config(const std::string& path) {
  YamlDocument document = YamlDocument::read(path);
  TrainConfig config;
  Fields fields(document, document.root());
  read_planned_fields(document, fields, path, config);
  fields.integer("steps", &config.steps, {1, 1'000'000'000}, kOptional);
  int64_t seed = static_cast<int64_t>(config.seed);
  fields.integer("seed", &seed, {0, std::numeric_limits<int64_t>::max()}, kOptional);
  config.seed = static_cast<uint64_t>(seed);
  fields.number("caption_dropout", &config.caption_dropout, {0.0, 1.0}, kOptional);
  if (const YamlNode* node = fields.map("optimizer", kOptional)) {
    read_optimizer(document, *node, config.optimizer);
  }
  fields.finish();
  document.throw_if_errors();
  return config;
}

std::string validate(const TrainConfig& config) {
  const auto in_range = [](const char* key, int64_t value, int64_t min, int64_t max) {
    return value < min || value > max
               ? fmt::format("{} is out of range: {}, allowed is {} to {}", key, value, min, max)
               : std::string();
  };
  if (config.model.empty()) return "model is missing";
  for (const auto& [key, value] :
       {std::pair("width", config.width), std::pair("height", config.height)}) {
    if (const auto fault = in_range(key, value, 64, kMaxPixels); !fault.empty()) return fault;
    if (value % 64 != 0) return fmt::format("{} must be a multiple of 64, got {}", key, value);
  }
  if (config.precision != "fp32" && config.precision != "fp16" && config.precision != "bf16") {
    return fmt::format("precision must be one of fp32, fp16, bf16, got {}", config.precision);
  }
  if (config.trainable.what != "controlnet" && config.trainable.what != "unet") {
    return fmt::format("trainable.what must be one of controlnet, unet, got {}",
                       config.trainable.what);
  }
  for (const auto& [key, value, max] :
       {std::tuple("batch", config.batch, int64_t{65536}),
        std::tuple("micro_batch", config.micro_batch, int64_t{65536}),
        std::tuple("steps", config.steps, int64_t{1'000'000'000})}) {
    if (const auto fault = in_range(key, value, 1, max); !fault.empty()) return fault;
  }
  if (!(config.caption_dropout >= 0.0 && config.caption_dropout <= 1.0)) {
    return fmt::format("caption_dropout is out of range: {}, allowed is 0 to 1",
                       config.caption_dropout);
  }
  const OptimizerConfig& o = config.optimizer;
  const bool finite = o.learning_rate >= 0 && o.learning_rate <= 1e3 && o.beta1 >= 0 &&
                      o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1 && o.eps > 0 && o.eps <= 1 &&
                      o.weight_decay >= 0 && o.weight_decay <= 1e3 && o.warmup_steps >= 0 &&
                      o.max_grad_norm >= 0;
  if (!finite) return "optimizer: a value is out of range, see configs/train/README.md";
  return combination_fault(config);
}

std::string canonical_text(const TrainConfig& config) {
  const OptimizerConfig& o = config.optimizer;
  return fmt::format(
      "width {}\nheight {}\nprecision {}\ntrainable {} sd_locked {} only_mid_control {}\nbatch {}\n"
      "micro_batch {}\nsteps {}\nseed {}\ncaption_dropout {}\noptimizer adamw lr {} beta1 {} beta2 "
      "{} "
      "eps {} weight_decay {} warmup_steps {} max_grad_norm {}\n",
      config.width, config.height, config.precision, config.trainable.what,
      config.trainable.sd_locked, config.trainable.only_mid_control, config.batch,
      config.micro_batch, config.steps, config.seed, config.caption_dropout, o.learning_rate,
      o.beta1, o.beta2, o.eps, o.weight_decay, o.warmup_steps, o.max_grad_norm);
}

}  // namespace stagecraft
