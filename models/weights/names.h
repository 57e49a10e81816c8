// Names under which files hold a parameter: today's diffusers and transformers names, and those of
// older folders.
//
// The tables are data, in names.cc. Pure functions; any thread. Internal to models/weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stagecraft {

// "unet.conv_in.weight" -> {"unet", "conv_in.weight"}. Throws InternalError when there is no part.
std::pair<std::string, std::string> split_part(std::string_view param_name);

// Names to look for in the files of `part`, best first; `name` is without its part.
std::vector<std::string> stored_names(std::string_view part, std::string_view name);

// A tensor that older files hold and nobody needs.
bool is_ignored(std::string_view part, std::string_view stored);

// Whether a tensor of shape `stored` may fill a parameter of shape `wanted`: equal, or a 1x1
// convolution for a linear layer (or the reverse) where older files differ.
bool shapes_agree(std::string_view part, std::string_view name, const std::vector<int64_t>& stored,
                  const std::vector<int64_t>& wanted);

}  // namespace stagecraft
