#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/weights/convert.h"
#include "models/weights/initial.h"
#include "models/weights/names.h"
#include "models/weights/part_files.h"
#include "models/weights/weight_source.h"
#include "partitioner/base/error.h"
#include "partitioner/base/sha256.h"

namespace stagecraft {
namespace {

constexpr size_t kListed = 10;

std::string base_name(const std::string& part) {
  return part == "text_encoder" ? "model" : "diffusion_pytorch_model";
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// What does not fit between the model and its files, one line for all parts.
class Differences {
 public:
  // Once each: a parameter of the UNet is asked for again by a ControlNet that starts from it.
  void add(const std::string& kind, const std::string& what) {
    if (seen_.emplace(kind, what).second) found_[kind].push_back(what);
  }
  void throw_if_any(const std::string& folder) const {
    if (found_.empty()) return;
    std::vector<std::string> parts;
    for (const auto& [kind, all] : found_) {
      const std::vector<std::string> first(
          all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kListed)));
      parts.push_back(fmt::format("{} {}: {}{}", all.size(), kind, fmt::join(first, ", "),
                                  all.size() > kListed ? ", ..." : ""));
    }
    throw InputError(ExitCode::kPlanMismatch,
                     fmt::format("{}: weights do not match the model: {}; check the model file",
                                 folder, fmt::join(parts, "; ")));
  }

 private:
  std::map<std::string, std::vector<std::string>> found_;
  std::set<std::pair<std::string, std::string>> seen_;  // kind, what
};

class DiffusersFolder : public WeightSource {
 public:
  DiffusersFolder(std::string folder, const std::vector<Param>& expected, uint64_t seed,
                  bool allow_nonfinite)
      : folder_(std::move(folder)), seed_(seed), allow_nonfinite_(allow_nonfinite) {
    for (const Param& param : expected) shapes_[param.name] = param.shape;
    std::set<std::string> parts;
    for (const Param& param : expected) parts.insert(split_part(param.name).first);
    std::error_code ignored;
    new_controlnet_ =
        parts.contains("controlnet") && !std::filesystem::exists(folder_ + "/controlnet", ignored);
    if (new_controlnet_) {
      parts.erase("controlnet");
      parts.insert("unet");
    }
    for (const std::string& part : parts) {
      parts_.emplace(part, PartFiles(folder_ + "/" + part, base_name(part)));
    }
    compare(expected);
  }

  void read(const Param& param, std::span<float> out) const override {
    check(static_cast<int64_t>(out.size()) == param.elements(), "weight of another size");
    const auto [part, name] = split_part(param.name);
    if (part != "controlnet" || !new_controlnet_) {
      read_stored(part, name, out);
      return;
    }
    switch (controlnet_start(name)) {
      case ControlNetStart::kCopyOfUNet:
        return read_stored("unet", name, out);
      case ControlNetStart::kZero:
        return std::fill(out.begin(), out.end(), 0.0f);
      case ControlNetStart::kDefaultInit:
        return fill_default_convolution(seed_, param.name, convolution_fan_in(param), out);
    }
  }

  std::string identity(const std::string& part) const override {
    if (part == "controlnet" && new_controlnet_) {
      return sha256_hex(
          fmt::format("controlnet from unet 1, seed {}, {}", seed_, parts_.at("unet").identity()));
    }
    const auto found = parts_.find(part);
    check(found != parts_.end(), "identity of a part that was not opened");
    return found->second.identity();
  }

 private:
  // The tensor's name in the files, or nothing.
  std::optional<std::string> find(const std::string& part, const std::string& name) const {
    const auto files = parts_.find(part);
    if (files == parts_.end()) return std::nullopt;
    for (const std::string& stored : stored_names(part, name)) {
      if (files->second.tensors().contains(stored) || files->second.unreadable().contains(stored)) {
        return stored;
      }
    }
    return std::nullopt;
  }

  void read_stored(const std::string& part, const std::string& name, std::span<float> out) const {
    const auto stored = find(part, name);
    if (!stored) {
      throw InputError(ExitCode::kPlanMismatch,
                       fmt::format("{}/{}: no tensor '{}'", folder_, part, name));
    }
    const PartFiles& files = parts_.at(part);
    files.read(*stored, out);
    if (!allow_nonfinite_ && !all_finite(out)) {
      throw InputError(ExitCode::kNoCheckpoint,
                       fmt::format("{}: tensor '{}' holds NaN or infinity; the weights are damaged",
                                   files.path_of(*stored), *stored));
    }
  }

  // A bias is scaled by the inputs of its weight.
  int64_t convolution_fan_in(const Param& param) const {
    constexpr std::string_view kBias = ".bias";
    if (!param.name.ends_with(kBias)) return fan_in(param.shape);
    const std::string weight = param.name.substr(0, param.name.size() - kBias.size()) + ".weight";
    const auto found = shapes_.find(weight);
    check(found != shapes_.end(), "bias without its weight among the expected parameters");
    return fan_in(found->second);
  }

  void compare(const std::vector<Param>& expected) const {
    Differences differences;
    std::map<std::string, std::set<std::string>> used, branches;
    for (const Param& param : expected) {
      auto [part, name] = split_part(param.name);
      if (part == "controlnet" && new_controlnet_) {
        if (controlnet_start(name) != ControlNetStart::kCopyOfUNet) continue;
        part = "unet";
      } else {
        branches[part].insert(name.substr(0, name.find('.')));
      }
      const auto stored = find(part, name);
      if (!stored) {
        differences.add("missing", part + "." + name);
        continue;
      }
      used[part].insert(*stored);
      const PartFiles& files = parts_.at(part);
      const auto info = files.tensors().find(*stored);
      if (info == files.tensors().end()) {
        differences.add("of a dtype that is not read",
                        fmt::format("{}.{} ({})", part, *stored, files.unreadable().at(*stored)));
      } else if (!shapes_agree(part, name, info->second.shape, param.shape)) {
        differences.add("of another shape",
                        fmt::format("{}.{} {}, the model has {}", part, *stored,
                                    shape_text(info->second.shape), shape_text(param.shape)));
      }
    }
    for (const auto& [part, files] : parts_) {
      if (!branches.contains(part)) continue;  // the UNet, opened for its copies only
      const auto look = [&](const std::string& stored) {
        if (used[part].contains(stored) || is_ignored(part, stored)) return;
        // Whoever encodes only needs no decoder.
        const std::string branch = stored.substr(0, stored.find('.'));
        if (part == "vae" && !branches[part].contains(branch)) return;
        differences.add("unexpected", part + "." + stored);
      };
      for (const auto& entry : files.tensors()) look(entry.first);
      for (const auto& entry : files.unreadable()) look(entry.first);
    }
    differences.throw_if_any(folder_);
  }

  std::string folder_;
  uint64_t seed_;
  bool allow_nonfinite_;
  bool new_controlnet_ = false;
  std::map<std::string, PartFiles> parts_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

}  // namespace

std::unique_ptr<WeightSource> open_diffusers_folder(const std::string& folder,
                                                    const std::vector<Param>& expected,
                                                    uint64_t seed, bool allow_nonfinite) {
  return std::make_unique<DiffusersFolder>(folder, expected, seed, allow_nonfinite);
}

}  // namespace stagecraft
