#include "pipeline/data/images.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "partitioner/base/error.h"
#include "pipeline/dataset/image_header.h"

namespace stagecraft {
namespace {

// OpenCV's own threads would compete with a rank's; its log lines are said better by our errors.
void quiet_opencv() {
  static const bool done = [] {
    cv::setNumThreads(1);
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    return true;
  }();
  (void)done;
}

// A view, no copy; OpenCV has no Mat over constant memory.
cv::Mat view_of(const Picture& picture) {
  return cv::Mat(static_cast<int>(picture.height), static_cast<int>(picture.width), CV_8UC3,
                 const_cast<uint8_t*>(picture.rgb.data()));
}

Picture blank_picture(int64_t width, int64_t height) {
  return {.width = width,
          .height = height,
          .rgb = std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
}

// The part of a picture that is seen at a resolution.
struct Crop {
  int64_t x, y, width, height;
};

Crop centred_crop(int64_t width, int64_t height, int64_t wanted_width, int64_t wanted_height) {
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
  quiet_opencv();
  const ImageHeader header = read_image_header(file);
  const cv::Mat bytes(1, static_cast<int>(file.size()), CV_8UC1, const_cast<char*>(file.data()));
  cv::Mat bgr;
  try {
    bgr = cv::imdecode(bytes, cv::IMREAD_COLOR);
  } catch (const cv::Exception&) {
    bgr.release();  // reported below, like a decoder that gives up quietly
  }
  if (bgr.empty()) {
    throw InputError(ExitCode::kDataInvalid, fmt::format("the {} file is damaged", header.format));
  }
  check(bgr.type() == CV_8UC3, "decode_picture: 8-bit colour expected");
  Picture picture = blank_picture(bgr.cols, bgr.rows);
  cv::Mat rgb = view_of(picture);
  cv::cvtColor(bgr, rgb, cv::COLOR_BGR2RGB);
  check(rgb.data == picture.rgb.data(), "decode_picture: OpenCV replaced the output");
  return picture;
}

Picture fit_picture(const Picture& picture, int64_t width, int64_t height) {
  quiet_opencv();
  if (picture.width == width && picture.height == height) return picture;
  const Crop crop = centred_crop(picture.width, picture.height, width, height);
  const cv::Mat seen =
      view_of(picture)(cv::Rect(static_cast<int>(crop.x), static_cast<int>(crop.y),
                                static_cast<int>(crop.width), static_cast<int>(crop.height)));
  Picture fitted = blank_picture(width, height);
  cv::Mat output = view_of(fitted);
  const bool enlarges = crop.width < width || crop.height < height;
  cv::resize(seen, output, output.size(), 0, 0, enlarges ? cv::INTER_LANCZOS4 : cv::INTER_AREA);
  check(output.data == fitted.rgb.data(), "fit_picture: OpenCV replaced the output");
  return fitted;
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
