// What a ring of devices takes to sum or to gather (Patarasuk and Yuan, "Bandwidth optimal
// all-reduce algorithms for clusters of workstations", 2009; NCCL's ring).
//
// Plain values and pure functions, any thread.
#pragma once

#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/cost/device.h"

namespace stagecraft {

class Ring {
 public:
  // Of `ranks` of `cluster`, each passing to the next and the last to the first. One rank needs no
  // communication: everything takes 0.
  Ring(const Cluster& cluster, const std::vector<int>& ranks);

  int members() const { return members_; }
  // n - 1 rounds, in each of which every device passes 1/n of the bytes on: all of them wait for
  // the slowest link.
  Nanos reduce_scatter(Bytes bytes) const { return rounds(bytes); }
  Nanos all_gather(Bytes bytes) const { return rounds(bytes); }
  // One after the other: each byte crosses a link 2 (n - 1) / n times.
  Nanos all_reduce(Bytes bytes) const { return rounds(bytes) + rounds(bytes); }

 private:
  Nanos rounds(Bytes bytes) const;

  int members_ = 1;
  std::vector<Link> links_;
};

// Buffers that a communicator holds on each device of a ring: two neighbours, two directions.
Bytes ring_buffers(const Device& device, int members);

}  // namespace stagecraft
