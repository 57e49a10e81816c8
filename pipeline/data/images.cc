#include "pipeline/data/images.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "partitioner/base/error.h"
#include "pipeline/dataset/image_header.h"

namespace stagecraft {
namespace {

// Opened once and never closed. A missing module is no fault of the data, hence no InputError.
const PictureCodec& codec() {
  static const PictureCodec* const opened = [] {
    const std::string path =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / kPictureModule).string();
    const auto fail = [] {
      throw Error(ExitCode::kStartup,
                  fmt::format("cannot open the picture decoder, which lies beside the programs: {}",
                              ::dlerror()));
    };
    void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) fail();
    const auto entry = reinterpret_cast<PictureModuleEntry*>(::dlsym(module, kPictureModuleEntry));
    if (entry == nullptr) fail();
    return entry();
  }();
  return *opened;
}

PictureArea centred_crop(int64_t width, int64_t height, int64_t wanted_width,
                         int64_t wanted_height) {
  const double scale = std::min(static_cast<double>(width) / static_cast<double>(wanted_width),
                                static_cast<double>(height) / static_cast<double>(wanted_height));
  const auto side = [scale](int64_t wanted, int64_t available) {
    return std::clamp<int64_t>(std::llround(static_cast<double>(wanted) * scale), 1, available);
  };
  const int64_t crop_width = side(wanted_width, width), crop_height = side(wanted_height, height);
  return {(width - crop_width) / 2, (height - crop_height) / 2, crop_width, crop_height};
}

at::Tensor planes(const Picture& picture) {
  const at::Tensor rows = at::from_blob(const_cast<uint8_t*>(picture.rgb.data()),
                                        {picture.height, picture.width, 3}, at::kByte);
  return rows.permute({2, 0, 1}).to(at::kFloat).contiguous();
}

}  // namespace

Picture decode_picture(std::string_view file) {
  const ImageHeader header = read_image_header(file);
  std::optional<Picture> picture = codec().decode(file);
  if (!picture) {
    throw InputError(ExitCode::kDataInvalid, fmt::format("the {} file is damaged", header.format));
  }
  return *std::move(picture);
}

Picture fit_picture(const Picture& picture, int64_t width, int64_t height) {
  if (picture.width == width && picture.height == height) return picture;
  return codec().scale(picture, centred_crop(picture.width, picture.height, width, height), width,
                       height);
}

std::string size_fault(int64_t width, int64_t height, int64_t wanted_width, int64_t wanted_height) {
  const double enlargement =
      std::max(static_cast<double>(wanted_width) / static_cast<double>(width),
               static_cast<double>(wanted_height) / static_cast<double>(height));
  if (enlargement <= kMaxEnlargement) return {};
  return fmt::format("{} x {} pixels would be enlarged {:.1f} times to cover {} x {}, at most {:g}",
                     width, height, enlargement, wanted_width, wanted_height, kMaxEnlargement);
}

at::Tensor hint_tensor(const Picture& picture) { return planes(picture) / 255.0; }

at::Tensor target_tensor(const Picture& picture) { return planes(picture) / 127.5 - 1.0; }

}  // namespace stagecraft
