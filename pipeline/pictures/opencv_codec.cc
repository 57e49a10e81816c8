#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "pipeline/pictures/picture_codec.h"

namespace stagecraft {
namespace {

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

class OpenCvCodec final : public PictureCodec {
 public:
  // OpenCV's own threads would compete with a rank's; its log lines are said better by our errors.
  OpenCvCodec() {
    cv::setNumThreads(1);
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
  }

  std::optional<Picture> decode(std::string_view file) const override {
    const cv::Mat bytes(1, static_cast<int>(file.size()), CV_8UC1, const_cast<char*>(file.data()));
    cv::Mat bgr;
    try {
      bgr = cv::imdecode(bytes, cv::IMREAD_COLOR);
    } catch (const cv::Exception&) {
      return std::nullopt;
    }
    if (bgr.empty() || bgr.type() != CV_8UC3) return std::nullopt;
    Picture picture = blank_picture(bgr.cols, bgr.rows);
    cv::cvtColor(bgr, view_of(picture), cv::COLOR_BGR2RGB);
    return picture;
  }

  Picture scale(const Picture& picture, const PictureArea& area, int64_t width,
                int64_t height) const override {
    const cv::Mat seen =
        view_of(picture)(cv::Rect(static_cast<int>(area.x), static_cast<int>(area.y),
                                  static_cast<int>(area.width), static_cast<int>(area.height)));
    Picture scaled = blank_picture(width, height);
    const cv::Mat output = view_of(scaled);
    const bool enlarges = area.width < width || area.height < height;
    cv::resize(seen, output, output.size(), 0, 0, enlarges ? cv::INTER_LANCZOS4 : cv::INTER_AREA);
    return scaled;
  }
};

}  // namespace
}  // namespace stagecraft

extern "C" __attribute__((visibility("default"))) const stagecraft::PictureCodec*
stagecraft_picture_codec() {
  static const stagecraft::OpenCvCodec codec;
  return &codec;
}
