// Looks at a picture's container before any decoder sees it: format, size in pixels, and whether
// the file is whole.
//
// Decoders allocate what a header asks for and fill what is missing with grey; both are refused
// here. Pure function, any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace stagecraft {

struct ImageHeader {
  std::string_view format;        // "PNG", "JPEG", "WebP", "BMP"
  int64_t width = 0, height = 0;  // as stored, before EXIF orientation
};

inline constexpr int64_t kMaxPixels = 64 * 1024 * 1024;

// Throws InputError(kDataInvalid), without a position: unknown format, animated, cut short, no
// pixels or over kMaxPixels. A JPEG is whole when its markers lead to the end marker, a PNG when
// its chunks lead to IEND.
ImageHeader read_image_header(std::string_view file);

}  // namespace stagecraft
