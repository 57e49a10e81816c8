#include "pipeline/dataset/image_header.h"

#include <fmt/format.h>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

[[noreturn]] void refuse_picture(const std::string& message) {
  throw InputError(ExitCode::kDataInvalid, message);
}

// Numbers out of a file; reading beyond its end is the fault "cut short".
class FileBytes {
 public:
  FileBytes(std::string_view data, std::string_view format) : data_(data), format_(format) {}
  uint8_t byte(size_t at) const {
    if (at >= data_.size()) cut_short();
    return static_cast<uint8_t>(data_[at]);
  }
  uint32_t big(size_t at, int bytes) const {
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | byte(at + static_cast<size_t>(i));
    return value;
  }
  uint32_t little(size_t at, int bytes) const {
    uint32_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | byte(at + static_cast<size_t>(i));
    return value;
  }
  std::string_view text(size_t at, size_t length) const {
    if (at > data_.size() || length > data_.size() - at) cut_short();
    return data_.substr(at, length);
  }
  // Where `value` stands first, from `at` on.
  size_t find(uint8_t value, size_t at) const {
    const size_t found = data_.find(static_cast<char>(value), at);
    if (found == std::string_view::npos) cut_short();
    return found;
  }
  size_t size() const { return data_.size(); }
  [[noreturn]] void cut_short() const {
    refuse_picture(fmt::format("the {} file is cut short at {} bytes", format_, data_.size()));
  }

 private:
  std::string_view data_, format_;
};

// PNG specification, section 5: chunks of length, type, data, CRC up to IEND.
ImageHeader read_png(std::string_view file) {
  const FileBytes bytes(file, "PNG");
  if (bytes.text(12, 4) != "IHDR") refuse_picture("the PNG file does not start with a header");
  const ImageHeader header = {"PNG", bytes.big(16, 4), bytes.big(20, 4)};
  for (size_t at = 8;;) {
    const size_t length = bytes.big(at, 4);
    const std::string_view type = bytes.text(at + 4, 4);
    if (type == "acTL") refuse_picture("an animated PNG; only still pictures are read");
    bytes.text(at + 8, length + 4);
    if (type == "IEND") return header;
    at += length + 12;
  }
}

bool is_frame_header(uint8_t marker) {  // SOF0 to SOF15 without DHT, JPG and DAC
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

// ITU T.81, annex B: segments; entropy-coded data follows each SOS and ends at a marker that is
// neither stuffed nor a restart.
ImageHeader read_jpeg(std::string_view file) {
  const FileBytes bytes(file, "JPEG");
  ImageHeader header = {.format = "JPEG"};
  for (size_t at = 2;;) {
    if (bytes.byte(at) != 0xFF)
      refuse_picture(fmt::format("the JPEG file is damaged at byte {}", at));
    const uint8_t marker = bytes.byte(at + 1);
    if (marker == 0xFF) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0xD9) break;
    if (is_frame_header(marker)) {
      header.height = bytes.big(at + 5, 2);
      header.width = bytes.big(at + 7, 2);
    }
    const size_t length = bytes.big(at + 2, 2);
    if (length < 2) refuse_picture(fmt::format("the JPEG file is damaged at byte {}", at));
    at += 2 + length;
    if (marker != 0xDA) continue;
    for (;; ++at) {
      at = bytes.find(0xFF, at);
      const uint8_t next = bytes.byte(at + 1);
      if (next != 0 && !(next >= 0xD0 && next <= 0xD7)) break;
    }
  }
  return header;
}

// WebP container specification and RFC 6386 section 9.1, WebP lossless section 3.
ImageHeader read_webp(std::string_view file) {
  const FileBytes bytes(file, "WebP");
  if (bytes.size() - 8 < bytes.little(4, 4)) bytes.cut_short();
  const std::string_view kind = bytes.text(12, 4);
  if (kind == "VP8X") {
    if (bytes.byte(20) & 0x02) refuse_picture("an animated WebP; only still pictures are read");
    return {"WebP", int64_t{bytes.little(24, 3)} + 1, int64_t{bytes.little(27, 3)} + 1};
  }
  if (kind == "VP8L") {
    const uint32_t packed = bytes.little(21, 4);
    return {"WebP", (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1};
  }
  if (kind != "VP8 ") refuse_picture("the WebP file has no picture");
  return {"WebP", bytes.little(26, 2) & 0x3FFF, bytes.little(28, 2) & 0x3FFF};
}

// BITMAPFILEHEADER and BITMAPINFOHEADER; a negative height means top row first.
ImageHeader read_bmp(std::string_view file) {
  const FileBytes bytes(file, "BMP");
  if (bytes.little(14, 4) < 40) refuse_picture("a BMP file of OS/2; save the picture as PNG");
  const auto width = static_cast<int32_t>(bytes.little(18, 4));
  const int64_t height = static_cast<int32_t>(bytes.little(22, 4));
  const uint32_t compression = bytes.little(30, 4);
  if (compression != 0 && compression != 3)
    refuse_picture("a compressed BMP file; save the picture as PNG");
  const ImageHeader header = {"BMP", width, height < 0 ? -height : height};
  const int64_t row = (int64_t{width} * bytes.little(28, 2) + 31) / 32 * 4;
  if (width > 0 && header.height <= kMaxPixels && header.width <= kMaxPixels &&
      static_cast<int64_t>(bytes.size()) < int64_t{bytes.little(10, 4)} + row * header.height) {
    bytes.cut_short();
  }
  return header;
}

ImageHeader read_any(std::string_view file) {
  if (file.empty()) refuse_picture("an empty file");
  if (file.starts_with("\x89PNG\r\n\x1a\n")) return read_png(file);
  if (file.starts_with("\xFF\xD8\xFF")) return read_jpeg(file);
  if (file.starts_with("RIFF") && file.substr(0, 12).ends_with("WEBP")) return read_webp(file);
  if (file.starts_with("BM")) return read_bmp(file);
  refuse_picture("not a picture; PNG, JPEG, WebP and BMP are read");
}

}  // namespace

ImageHeader read_image_header(std::string_view file) {
  const ImageHeader header = read_any(file);
  if (header.width <= 0 || header.height <= 0) refuse_picture("a picture without pixels");
  if (header.width > kMaxPixels / header.height) {
    refuse_picture(fmt::format("{} x {} pixels, at most {} megapixels are read", header.width,
                               header.height, kMaxPixels / (1024 * 1024)));
  }
  return header;
}

}  // namespace stagecraft
