#include "partitioner/base/error.h"
#include "partitioner/baselines/cuts.h"

namespace stagecraft {

Cuts uniform_cuts(int items, int parts) {
  check(parts > 0 && items >= parts, "cuts: fewer items than parts");
  Cuts cuts{0};
  for (int i = 0; i < parts; ++i) {
    cuts.push_back(cuts.back() + items / parts + (i < items % parts ? 1 : 0));
  }
  return cuts;
}

}  // namespace stagecraft
