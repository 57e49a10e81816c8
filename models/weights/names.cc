#include "models/weights/names.h"

#include <array>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

// diffusers before 0.13 named the VAE's attention so, the last one of them with a list around it
// today.
struct Renamed {
  std::string_view today, before;
};
constexpr std::array kVaeAttention = {
    Renamed{".to_q.", ".query."},
    Renamed{".to_k.", ".key."},
    Renamed{".to_v.", ".value."},
    Renamed{".to_out.0.", ".proj_attn."},
};
constexpr std::string_view kVaeAttentionModule = ".mid_block.attentions.0.";

// transformers before 5 had this level between the model and its layers.
constexpr std::string_view kTextLevel = "text_model.";
// A buffer, int64 [1, 77], that transformers before 4.31 saved.
constexpr std::string_view kTextBuffer = "embeddings.position_ids";

}  // namespace

std::pair<std::string, std::string> split_part(std::string_view param_name) {
  const size_t dot = param_name.find('.');
  check(dot != std::string_view::npos && dot > 0, "parameter name without a part");
  return {std::string(param_name.substr(0, dot)), std::string(param_name.substr(dot + 1))};
}

std::vector<std::string> stored_names(std::string_view part, std::string_view name) {
  std::vector<std::string> names = {std::string(name)};
  if (part == "text_encoder") {
    if (name.starts_with(kTextLevel)) {
      names.emplace_back(name.substr(kTextLevel.size()));
    } else {
      names.push_back(std::string(kTextLevel) + std::string(name));
    }
  }
  if (part == "vae" && name.find(kVaeAttentionModule) != std::string_view::npos) {
    for (const auto& [today, before] : kVaeAttention) {
      if (const size_t at = name.find(today); at != std::string_view::npos) {
        names.emplace_back(name).replace(at, today.size(), before);
      }
    }
  }
  return names;
}

bool is_ignored(std::string_view part, std::string_view stored) {
  return part == "text_encoder" && stored.ends_with(kTextBuffer);
}

bool shapes_agree(std::string_view part, std::string_view name, const std::vector<int64_t>& stored,
                  const std::vector<int64_t>& wanted) {
  if (stored == wanted) return true;
  if (part != "vae" || name.find(kVaeAttentionModule) == std::string_view::npos) return false;
  std::vector<int64_t> a = stored, b = wanted;
  for (auto* shape : {&a, &b}) {
    if (shape->size() == 4 && (*shape)[2] == 1 && (*shape)[3] == 1) shape->resize(2);
  }
  return a == b;
}

}  // namespace stagecraft
