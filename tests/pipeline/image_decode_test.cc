// Pictures come out as cv::imread gives them, turned upright, cropped and scaled; damaged ones are
// named.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "partitioner/base/error.h"
#include "pipeline/data/images.h"
#include "pipeline/dataset/image_header.h"
#include "tests/support/expect_error.h"
#include "tests/support/pictures.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

uint8_t channel(const Picture& picture, int64_t x, int64_t y, int64_t c) {
  return picture.rgb[static_cast<size_t>((y * picture.width + x) * 3 + c)];
}

std::string fault_of(const std::string& file) {
  return data_fault([&] { decode_picture(file); });
}

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

TEST(Decode, GivesRedGreenBlueInThisOrder) {
  for (const char* extension : {".png", ".bmp"}) {
    const Picture picture = decode_picture(encode(ramp_picture(8, 4), extension));
    ASSERT_EQ(picture.width, 8);
    ASSERT_EQ(picture.height, 4);
    EXPECT_EQ(channel(picture, 7, 0, 0), 255);  // red at the right
    EXPECT_EQ(channel(picture, 0, 3, 1), 255);  // green at the bottom
    EXPECT_EQ(channel(picture, 3, 2, 2), 64);
  }
}

TEST(Decode, ReadsJpegAndWebp) {
  for (const char* extension : {".jpg", ".webp"}) {
    const Picture picture = decode_picture(encode(ramp_picture(48, 32), extension));
    ASSERT_EQ(picture.width, 48) << extension;
    ASSERT_EQ(picture.height, 32) << extension;
    EXPECT_GT(channel(picture, 47, 16, 0), 230) << extension;
    EXPECT_LT(channel(picture, 0, 16, 0), 25) << extension;
  }
}

TEST(Decode, TurnsAPictureByItsExifOrientation) {
  const std::string jpeg = encode(ramp_picture(48, 32), ".jpg");
  // Orientation 6: turn by 90 degrees clockwise, so the left edge is then at the top.
  const Picture turned = decode_picture(with_orientation(jpeg, 6));
  ASSERT_EQ(turned.width, 32);
  ASSERT_EQ(turned.height, 48);
  EXPECT_LT(channel(turned, 16, 0, 0), 25);
  EXPECT_GT(channel(turned, 16, 47, 0), 230);
  EXPECT_GT(channel(turned, 0, 24, 1), 230);  // the bottom edge is now at the left
  // Orientation 3: upside down.
  const Picture upside_down = decode_picture(with_orientation(jpeg, 3));
  ASSERT_EQ(upside_down.width, 48);
  EXPECT_LT(channel(upside_down, 47, 16, 0), 25);
  EXPECT_LT(channel(upside_down, 24, 31, 1), 25);
}

TEST(Decode, DropsAlphaSpreadsGreyAndReducesSixteenBits) {
  const cv::Mat alpha(2, 2, CV_8UC4, cv::Scalar(10, 20, 30, 0));
  const Picture opaque = decode_picture(encode(alpha, ".png"));
  EXPECT_EQ(channel(opaque, 0, 0, 0), 30);
  const Picture grey = decode_picture(encode(cv::Mat(2, 2, CV_8UC1, cv::Scalar(77)), ".png"));
  EXPECT_EQ(channel(grey, 1, 1, 0), 77);
  EXPECT_EQ(channel(grey, 1, 1, 2), 77);
  const cv::Mat deep(2, 2, CV_16UC3, cv::Scalar(0x4000, 0x8000, 0xFFFF));
  EXPECT_EQ(channel(decode_picture(encode(deep, ".png")), 0, 0, 1), 0x80);
}

TEST(Decode, RefusesAFileThatIsCutShortAnywhere) {
  for (const char* extension : {".png", ".jpg", ".webp", ".bmp"}) {
    const std::string whole = encode(ramp_picture(40, 24), extension);
    for (size_t length = 0; length < whole.size(); length += whole.size() / 23 + 1) {
      EXPECT_NE(fault_of(whole.substr(0, length)), "no fault") << extension << " at " << length;
    }
    EXPECT_THAT(fault_of(whole.substr(0, whole.size() / 2)), HasSubstr("cut short")) << extension;
  }
}

TEST(Decode, RefusesAJpegCutInsideItsData) {
  const std::string whole = encode(ramp_picture(40, 24), ".jpg");
  EXPECT_THAT(fault_of(whole.substr(0, whole.size() - 2)), HasSubstr("JPEG file is cut short"));
}

TEST(Decode, RefusesAPngWithADamagedChunk) {
  std::string file = encode(ramp_picture(40, 24), ".png");
  file[file.find("IDAT") + 20] ^= 0x10;
  EXPECT_THAT(fault_of(file), HasSubstr("PNG file is damaged"));
}

TEST(Decode, RefusesAHeaderThatAsksForTooManyPixels) {
  std::string png = encode(ramp_picture(4, 4), ".png");
  png.replace(16, 8, big_endian(65535) + big_endian(65535));
  EXPECT_THAT(fault_of(png), HasSubstr("65535 x 65535 pixels, at most 64 megapixels"));
  std::string jpeg = encode(ramp_picture(16, 16), ".jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_THAT(fault_of(jpeg), HasSubstr("65535 x 65535 pixels"));
}

TEST(Decode, RefusesWhatIsNoPicture) {
  EXPECT_THAT(fault_of(""), HasSubstr("an empty file"));
  EXPECT_THAT(fault_of("GIF89a is not read"), HasSubstr("not a picture"));
  EXPECT_THAT(fault_of("<VRTDataset/>"), HasSubstr("not a picture"));
}

TEST(Decode, RefusesAPictureWithoutPixels) {
  std::string png = encode(ramp_picture(4, 4), ".png");
  png.replace(16, 4, big_endian(0));
  EXPECT_THAT(fault_of(png), HasSubstr("without pixels"));
}

TEST(Decode, RefusesAnAnimatedPng) {
  std::string png = encode(ramp_picture(4, 4), ".png");
  png.insert(33, big_endian(8) + "acTL" + std::string(12, '\0'));
  EXPECT_THAT(fault_of(png), HasSubstr("animated PNG"));
}

TEST(Decode, DamagedBytesAreRefusedOrDecodedNeverMore) {
  for (const char* extension : {".png", ".jpg", ".webp", ".bmp"}) {
    const std::string whole = encode(ramp_picture(40, 24), extension);
    uint32_t random = 1;
    for (int turn = 0; turn < 300; ++turn) {
      std::string file = whole;
      for (int flips = 0; flips < 3; ++flips) {
        random = random * 1664525u + 1013904223u;  // Numerical Recipes' generator
        file[random % std::min<size_t>(file.size(), 120)] = static_cast<char>(random >> 24);
      }
      fault_of(file);  // an exception of another kind, or a crash, fails
    }
  }
}

TEST(Fit, LeavesAPictureOfTheRightSizeAlone) {
  const Picture picture = decode_picture(encode(ramp_picture(64, 48), ".png"));
  EXPECT_EQ(fit_picture(picture, 64, 48).rgb, picture.rgb);
}

TEST(Fit, CropsTheMiddleOfAWiderPicture) {
  const Picture wide = decode_picture(encode(ramp_picture(201, 50), ".png"));
  const Picture square = fit_picture(wide, 50, 50);
  ASSERT_EQ(square.width, 50);
  EXPECT_EQ(channel(square, 0, 25, 0), channel(wide, 75, 25, 0));
  EXPECT_EQ(channel(square, 49, 25, 0), channel(wide, 124, 25, 0));
  EXPECT_EQ(channel(square, 25, 49, 1), 255);  // all rows are there
}

TEST(Fit, CropsTheMiddleOfATallerPicture) {
  const Picture tall = decode_picture(encode(ramp_picture(50, 201), ".png"));
  const Picture square = fit_picture(tall, 50, 50);
  EXPECT_EQ(channel(square, 25, 0, 1), channel(tall, 25, 75, 1));
  EXPECT_EQ(channel(square, 49, 25, 0), 255);
}

TEST(Fit, ShrinksByTheMeanOfThePixelsCovered) {
  cv::Mat stripes(64, 64, CV_8UC3);
  for (int x = 0; x < 64; ++x)
    stripes.col(x).setTo(x % 2 == 0 ? cv::Scalar::all(0) : cv::Scalar::all(200));
  const Picture small = fit_picture(decode_picture(encode(stripes, ".png")), 32, 32);
  for (const uint8_t value : small.rgb) ASSERT_EQ(value, 100);
}

TEST(Fit, EnlargesToCoverANonSquareResolution) {
  const Picture small = decode_picture(encode(ramp_picture(60, 60), ".png"));
  const Picture large = fit_picture(small, 64, 128);
  EXPECT_EQ(large.width, 64);
  EXPECT_EQ(large.height, 128);
  EXPECT_GT(channel(large, 32, 127, 1), 250);
  // Only the middle half of the width is seen.
  EXPECT_NEAR(channel(large, 0, 64, 0), 64, 6);
  EXPECT_NEAR(channel(large, 63, 64, 0), 191, 6);
}

TEST(Fit, TakesAnExtremeShapeWithoutMakingItLarger) {
  const Picture line = decode_picture(encode(ramp_picture(4000, 1), ".png"));
  EXPECT_EQ(fit_picture(line, 64, 64).rgb.size(), 64u * 64 * 3);
}

TEST(SizeFault, NamesPicturesThatWouldBeEnlargedTooMuch) {
  EXPECT_EQ(size_fault(128, 128, 512, 512), "");
  EXPECT_EQ(size_fault(3000, 200, 512, 512), "");
  EXPECT_THAT(size_fault(3000, 100, 512, 512),
              HasSubstr("3000 x 100 pixels would be enlarged 5.1"));
}

TEST(Tensors, HintIsZeroToOneAndTargetMinusOneToOne) {
  Picture picture = {.width = 2, .height = 1, .rgb = {0, 51, 255, 1, 2, 3}};
  const at::Tensor hint = hint_tensor(picture), target = target_tensor(picture);
  ASSERT_EQ(hint.sizes(), (at::IntArrayRef{3, 1, 2}));
  EXPECT_TRUE(hint.is_contiguous() && target.is_contiguous());
  for (int64_t x = 0; x < 2; ++x) {
    for (int64_t c = 0; c < 3; ++c) {
      const auto value = static_cast<float>(channel(picture, x, 0, c));
      EXPECT_EQ(hint[c][0][x].item<float>(), value / 255.0f);
      EXPECT_EQ(target[c][0][x].item<float>(), value / 127.5f - 1.0f);
    }
  }
}

}  // namespace
}  // namespace stagecraft
