// A small data set in a temporary folder.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "pipeline/data/cache.h"
#include "pipeline/dataset/dataset.h"
#include "tests/support/pictures.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {

class PictureSet {
 public:
  // Sample i is a picture of its own, 64 x 96 pixels, with its own caption.
  explicit PictureSet(int samples) {
    for (int i = 0; i < samples; ++i) add(name("s", i), name("t", i), fmt::format("caption {}", i));
    for (int i = 0; i < samples; ++i) {
      write(name("s", i), encode(cv::Mat(96, 64, CV_8UC3, cv::Scalar::all(i)), ".png"));
      write(name("t", i), encode(picture(i), ".png"));
    }
  }
  static cv::Mat picture(int i) {
    cv::Mat ramp = ramp_picture(64, 96);
    ramp(cv::Rect(0, 0, 8, 8)).setTo(cv::Scalar(10 * i, 0, 255));
    return ramp;
  }
  void add(const std::string& source, const std::string& target, const std::string& prompt) {
    lines_ +=
        nlohmann::json{{"source", source}, {"target", target}, {"prompt", prompt}}.dump() + "\n";
    write("prompt.json", lines_);
  }
  void add_line(const std::string& line) {
    lines_ += line + "\n";
    write("prompt.json", lines_);
  }
  std::string write(const std::string& name, const std::string& content) const {
    return folder_.write("set/" + name, content);
  }
  std::string path(const std::string& name) const { return folder_.file("set/" + name); }
  Dataset read() const { return read_dataset(folder_.file("set")); }
  std::string cache() const { return folder_.file("cache"); }
  CacheOptions options() const { return {.folder = cache(), .width = 64, .height = 96}; }

 private:
  static std::string name(const char* kind, int i) { return fmt::format("{}{}.png", kind, i); }

  TempFolder folder_;
  std::string lines_;
};

}  // namespace stagecraft
