// Pictures for the data tests: encoded in memory, with EXIF bytes where wanted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <opencv2/imgcodecs.hpp>
#include <string>
#include <vector>

namespace stagecraft {

// A picture that is different everywhere and not symmetric: red grows to the right, green
// downwards.
inline cv::Mat ramp_picture(int width, int height) {
  cv::Mat picture(height, width, CV_8UC3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      picture.at<cv::Vec3b>(y, x) =
          cv::Vec3b(64, static_cast<uint8_t>(y * 255 / std::max(1, height - 1)),
                    static_cast<uint8_t>(x * 255 / std::max(1, width - 1)));  // BGR
    }
  }
  return picture;
}

inline std::string encode(const cv::Mat& picture, const std::string& extension) {
  std::vector<uint8_t> bytes;
  std::vector<int> parameters;
  if (extension == ".jpg") parameters = {cv::IMWRITE_JPEG_QUALITY, 100};
  cv::imencode(extension, picture, bytes, parameters);
  return std::string(bytes.begin(), bytes.end());
}

// Puts an EXIF segment with one entry, the orientation (1 to 8, TIFF 6.0), behind the start marker
// of a JPEG.
inline std::string with_orientation(const std::string& jpeg, int orientation) {
  std::string exif("Exif\0\0", 6);
  exif += std::string("II*\0\x08\0\0\0", 8);           // little-endian, directory at 8
  exif += std::string("\x01\0", 2);                    // one entry
  exif += std::string("\x12\x01\x03\0\x01\0\0\0", 8);  // orientation, SHORT, one
  exif += std::string(1, static_cast<char>(orientation)) + std::string(7, '\0');  // value, no next
  const auto length = static_cast<uint16_t>(exif.size() + 2);
  std::string segment = {'\xFF', '\xE1', static_cast<char>(length >> 8),
                         static_cast<char>(length & 0xFF)};
  return jpeg.substr(0, 2) + segment + exif + jpeg.substr(2);
}

}  // namespace stagecraft
