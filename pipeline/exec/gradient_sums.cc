#include "pipeline/exec/gradient_sums.h"

#include <ATen/ATen.h>

#include "partitioner/base/error.h"
#include "partitioner/base/mistakes.h"

namespace stagecraft {

void GradientSums::start_from(int value, int micro_batch, at::Tensor partial) {
  auto& place = made(Mistake::kFoldInWrongOrder) ? mistaken_ : sums_;
  const bool fresh = place.emplace(Key{value, micro_batch}, std::move(partial)).second;
  check(fresh, "a partial gradient arrived after this rank had begun its own sum");
}

void GradientSums::add(int value, int micro_batch, at::Tensor gradient) {
  const auto [place, first] = sums_.try_emplace({value, micro_batch}, gradient);
  if (first) return;
  at::Tensor& sum = place->second;
  if (made(Mistake::kSkipGradientDropped)) sum = at::zeros_like(sum);
  const bool sole_owner = sum.use_count() == 1 && sum.storage().use_count() == 1;
  sum = sole_owner ? sum.add_(gradient) : sum.add(gradient);
}

at::Tensor GradientSums::take(int value, int micro_batch) {
  if (auto late = mistaken_.extract({value, micro_batch})) {
    add(value, micro_batch, std::move(late.mapped()));
  }
  auto node = sums_.extract({value, micro_batch});
  return node.empty() ? at::Tensor() : std::move(node.mapped());
}

}  // namespace stagecraft
