// Looks at the steps of one rank from outside. What it sees is not to be changed or kept; the base
// class looks away.
//
// Called by the rank's thread, in the order below, once a step (`data` often). Any of them may
// block and throw, as the audit's do (disk, InputError(kIo)); what is thrown ends the rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "pipeline/data/samples.h"

namespace stagecraft {

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // `draws` is the global batch.
  virtual void begin(int64_t /*step*/, std::span<const Draw> /*draws*/) {}
  // As RankExecutor::on_data. Comes outside of steps too, while a fixed set is evaluated.
  virtual void data(std::string_view /*what*/, int /*micro_batch*/, const at::Tensor&) {}
  // All gradients are summed and none is clipped; weights and moments are still those of before.
  virtual void gradients_ready(double /*norm*/) {}
  // Weights and moments are those of after.
  virtual void updated() {}
};

}  // namespace stagecraft
