#include "partitioner/alternatives/ring.h"

#include <algorithm>
#include <cmath>

#include "partitioner/base/error.h"

namespace stagecraft {

Ring::Ring(const Cluster& cluster, const std::vector<int>& ranks)
    : members_(static_cast<int>(ranks.size())) {
  check(!ranks.empty(), "a ring has no member");
  if (members_ == 1) return;
  for (size_t i = 0; i < ranks.size(); ++i) {
    links_.push_back(cluster.between(ranks[i], ranks[(i + 1) % ranks.size()]));
    check(links_.back().bandwidth > 0, "the cluster's link has no bandwidth");
  }
}

Nanos Ring::rounds(Bytes bytes) const {
  const double piece = static_cast<double>(bytes.count) / members_;
  int64_t slowest = 0;
  for (const Link& link : links_) {
    const int64_t passing = std::llround(1e9 * piece / link.bandwidth);
    slowest = std::max(slowest, link.latency.count + passing);
  }
  return Nanos{slowest} * (members_ - 1);
}

Bytes ring_buffers(const Device& device, int members) {
  return members > 1 ? device.comm_buffer_per_peer * 4 : Bytes{};
}

}  // namespace stagecraft
