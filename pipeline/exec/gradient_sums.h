// Gradients of values on their way backward through one rank.
//
// The gradient of a value is one left fold over its consumers, last in block order first, whichever
// ranks they run on (docs/schedule.md): what later ranks sent, then this rank's own contributions
// in the order in which they are added. Used by the executor's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>

namespace stagecraft {

class GradientSums {
 public:
  // The partial sum of consumers on later ranks. InternalError when this rank has added already.
  void start_from(int value, int micro_batch, at::Tensor partial);
  // In place where nobody else holds the sum's storage.
  void add(int value, int micro_batch, at::Tensor gradient);

  bool contains(int value, int micro_batch) const { return sums_.contains({value, micro_batch}); }
  bool empty() const { return sums_.empty() && mistaken_.empty(); }
  // The sum, which is forgotten here; undefined where there is none.
  at::Tensor take(int value, int micro_batch);

 private:
  using Key = std::pair<int, int>;
  std::map<Key, at::Tensor> sums_;
  std::map<Key, at::Tensor> mistaken_;  // Mistake::kFoldInWrongOrder: partial sums, added last
};

}  // namespace stagecraft
