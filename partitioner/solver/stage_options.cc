#include "partitioner/solver/stage_options.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <limits>

#include "partitioner/solver/rerun_choice.h"

namespace stagecraft {
namespace {

constexpr double kMaxMultisets = 4096;  // of used devices

bool are_alike(const Device& a, const Device& b) {
  return a.memory == b.memory && a.base == b.base &&
         a.comm_buffer_per_peer == b.comm_buffer_per_peer && a.slack_fraction == b.slack_fraction;
}

// The two ranks can change places and every link stays what it is.
bool are_linked_alike(const Cluster& cluster, int a, int b) {
  const int ranks = static_cast<int>(cluster.devices.size());
  for (int other = 0; other < ranks; ++other) {
    if (other == a || other == b) continue;
    if (!(cluster.between(a, other) == cluster.between(b, other)) ||
        !(cluster.between(other, a) == cluster.between(other, b)))
      return false;
  }
  return cluster.between(a, b) == cluster.between(b, a);
}

}  // namespace

StageOptions::StageOptions(const StageTable& table, const SplitTarget& target)
    : table_(table), target_(target), any_order_(target.any_order && target.fixed.empty()) {
  // Fewer classes where there would be too many orders: links do not count, then no order is free.
  make_classes(/*by_links=*/true);
  if (count_multisets() > kMaxMultisets) make_classes(/*by_links=*/false);
  if (count_multisets() > kMaxMultisets) {
    any_order_ = false;
    make_classes(false);
  }
  const int classes = static_cast<int>(classes_.size());
  more_.assign(static_cast<size_t>(target.stages()) * classes, {});
  for (int s = 0; s < target.stages(); ++s)
    for (int c = 0; c < classes; ++c) {
      if (!any_order_ && c != s) continue;
      std::vector<int64_t>& more = more_[s * classes + c];
      more.assign(table.edges(), kForbidden);
      tbb::parallel_for(0, table.edges(), [&](int e) { more[e] = find_more(s, c, e); });
    }
}

double StageOptions::count_multisets() const {
  double multisets = 1;
  for (const DeviceClass& c : classes_) multisets *= static_cast<double>(c.ranks.size() + 1);
  return any_order_ ? multisets : 1;
}

void StageOptions::make_classes(bool by_links) {
  const std::vector<Device>& devices = target_.cluster.devices;
  classes_.clear();
  for (int r = 0; r < target_.stages(); ++r) {
    const int kind = table_.costs().kind_of_rank(r);
    const auto same = std::ranges::find_if(classes_, [&](const DeviceClass& c) {
      return any_order_ && c.kind == kind && are_alike(devices[c.ranks.front()], devices[r]) &&
             (!by_links || are_linked_alike(target_.cluster, c.ranks.front(), r));
    });
    if (same == classes_.end()) {
      classes_.push_back({.kind = kind, .ranks = {r}});
    } else {
      same->ranks.push_back(r);
    }
  }
}

int64_t StageOptions::find_more(int s, int c, int e) const {
  const StageTable::Edge& edge = table_.edge(e);
  const bool is_first = edge.from == 0, is_last = edge.to == table_.nodes() - 1;
  if (is_first != (s == 0) || is_last != (s == target_.stages() - 1)) return kForbidden;
  for (const auto& [block, rank] : target_.fixed) {
    const int unit = table_.order().unit_of_block[block];
    const bool is_here = table_.set(edge.to).has(unit) && !table_.set(edge.from).has(unit);
    if (is_here != (rank == s)) return kForbidden;
  }
  const Device& device = target_.cluster.devices[classes_[c].ranks.front()];
  const StageContext context = context_of(table_, target_, s);
  const int64_t over =
      memory_bound(table_.cost(classes_[c].kind, e), context, device) - device.memory.count;
  if (over <= 0) return 0;
  if (!target_.may_recompute) return kForbidden;
  // As in a fractional knapsack, the densest first.
  auto left = static_cast<double>(over);
  double time = 0;
  for (const StageCosts::Rerun& rerun :
       table_.stage_costs(classes_[c].kind).reruns(table_.stage(e))) {
    const double freed = most_freed(rerun, context, device);
    if (freed >= left)
      return static_cast<int64_t>(time + static_cast<double>(rerun.time) * left / freed);
    left -= freed;
    time += static_cast<double>(rerun.time);
  }
  return kForbidden;
}

int64_t StageOptions::likely_more(int s, int c, int e) const {
  {
    const std::lock_guard lock(mutex_);
    const auto known = likely_.find({s, c, e});
    if (known != likely_.end()) return known->second;
  }
  const int rank = classes_[c].ranks.front();
  RerunChoice choice(table_, target_, s, rank, e);
  int64_t more = 0;
  if (choice.reruns().size() > kExactReruns) {
    const std::vector<int> chosen =
        choice.densest_within(target_.cluster.devices[rank].memory.count);
    more = chosen.empty() ? std::numeric_limits<int32_t>::max() : choice.time(chosen);
  }
  const std::lock_guard lock(mutex_);
  return likely_[{s, c, e}] = more;
}

}  // namespace stagecraft
