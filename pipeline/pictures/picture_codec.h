// What decodes and scales pictures: a module of its own, opened when a process meets its first
// picture.
//
// OpenCV's codecs bring GDAL and some 120 libraries more, 35 MiB of a process; most ranks read no
// picture. The module lies beside the programs and is built with them. Any thread; OpenCV runs on
// the caller's thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace stagecraft {

struct Picture {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // rows of width x 3
};

// A part of a picture, in pixels, inside it.
struct PictureArea {
  int64_t x, y, width, height;
};

class PictureCodec {
 public:
  // A whole file as cv::imread gives it: EXIF orientation applied, alpha dropped, 16 bits reduced
  // to 8, grey spread over three channels. Nothing when the data does not decode.
  virtual std::optional<Picture> decode(std::string_view file) const = 0;
  // `area` scaled to width x height: INTER_AREA when shrinking, INTER_LANCZOS4 when enlarging.
  virtual Picture scale(const Picture& picture, const PictureArea& area, int64_t width,
                        int64_t height) const = 0;

 protected:
  ~PictureCodec() = default;
};

inline constexpr const char* kPictureModule = "libstagecraft_pictures.so";
inline constexpr const char* kPictureModuleEntry = "stagecraft_picture_codec";
using PictureModuleEntry = const PictureCodec*();  // the codec lives as long as the process

}  // namespace stagecraft
