// Stands in for VAE and text encoder: results depend on the input, calls are counted.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "pipeline/data/encoder.h"

namespace stagecraft {

class FakeEncoder : public Encoder {
 public:
  FakeEncoder(int64_t width, int64_t height) : width_(width), height_(height) {}

  std::string image_identity() const override { return weights; }
  std::string text_identity() const override { return weights; }
  std::vector<int64_t> latent_shape() const override { return {4, height_ / 8, width_ / 8}; }
  std::vector<int64_t> embedding_shape() const override { return {5, 6}; }
  std::vector<int64_t> tokenize(std::string_view caption) const override {
    std::vector<int64_t> ids(5, 0);
    for (size_t i = 0; i < caption.size(); ++i) ids[i % 5] = ids[i % 5] * 31 + caption[i];
    return ids;
  }
  // Mean: the picture shrunk, red, green, blue and their sum; log-variance: 1, 100 and -100 by
  // channel.
  at::Tensor encode_image(const at::Tensor& image) override {
    ++images;
    holds_vae = true;
    if (holds_text) both_at_once = true;
    const at::Tensor small = at::avg_pool2d(image, 8);
    at::Tensor moments =
        at::cat({small, small.sum(1, true), at::ones({1, 4, height_ / 8, width_ / 8})}, 1);
    moments.select(1, 5).fill_(100.0);
    moments.select(1, 6).fill_(-100.0);
    return moments;
  }
  at::Tensor encode_text(const std::vector<int64_t>& ids) override {
    ++captions;
    holds_text = true;
    if (holds_vae) both_at_once = true;
    return at::tensor(ids, at::kLong).to(at::kFloat).view({1, 5, 1}).expand({1, 5, 6}).contiguous();
  }
  void release() override { holds_vae = holds_text = false; }

  std::string weights = "a";
  int images = 0, captions = 0;
  bool holds_vae = false, holds_text = false, both_at_once = false;

 private:
  int64_t width_, height_;
};

}  // namespace stagecraft
