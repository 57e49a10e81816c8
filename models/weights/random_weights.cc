#include <fmt/format.h>

#include "models/weights/initial.h"
#include "models/weights/weight_source.h"
#include "partitioner/base/sha256.h"

namespace stagecraft {
namespace {

class RandomWeights : public WeightSource {
 public:
  explicit RandomWeights(uint64_t seed) : seed_(seed) {}
  void read(const Param& param, std::span<float> out) const override {
    fill_random_weight(seed_, param, out);
  }
  std::string identity(const std::string& part) const override {
    return sha256_hex(fmt::format("random weights 1, seed {}, {}", seed_, part));
  }

 private:
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<WeightSource> random_weights(uint64_t seed) {
  return std::make_unique<RandomWeights>(seed);
}

}  // namespace stagecraft
