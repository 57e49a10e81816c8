// Pictures as the networks take them: read, turned, cropped, scaled, as fp32 planes.
//
// Reading follows cv::imread as ControlNet's tutorial_dataset.py uses it: EXIF orientation applied,
// alpha dropped, 16 bits reduced to 8, grey spread over three channels. Pure functions on memory,
// any thread; the first picture opens the module of pipeline/pictures (Error(kStartup) when it is
// not there).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "pipeline/pictures/picture_codec.h"

namespace stagecraft {

inline constexpr int64_t kMaxImageBytes = int64_t{256} * 1024 * 1024;

// Decodes a whole file. Throws InputError(kDataInvalid), without a position: what
// `read_image_header` refuses, and data that does not decode.
Picture decode_picture(std::string_view file);

// The largest centred crop of the shape width : height, scaled to it: INTER_AREA when shrinking,
// INTER_LANCZOS4 when enlarging (cldm's resize_image), nothing at all when the size is right.
Picture fit_picture(const Picture& picture, int64_t width, int64_t height);

// What is wrong with a picture of this size for the resolution, empty if nothing: enlarging beyond
// kMaxEnlargement.
inline constexpr double kMaxEnlargement = 4.0;
std::string size_fault(int64_t width, int64_t height, int64_t wanted_width, int64_t wanted_height);

// [3, H, W] fp32 of a fitted picture: value / 255 in [0, 1]; value / 127.5 - 1 in [-1, 1].
at::Tensor hint_tensor(const Picture& picture);
at::Tensor target_tensor(const Picture& picture);

}  // namespace stagecraft
