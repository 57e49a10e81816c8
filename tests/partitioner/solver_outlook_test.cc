// What more would buy, against what it then does buy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/base/format.h"
#include "partitioner/solver/outlook.h"
#include "tests/partitioner/solver_problems.h"

namespace stagecraft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kOutlookMiB = 1024 * 1024;

// Six equal blocks in a row, each 1 ms forward and 2 ms backward, that keep 10 MiB of a
// micro-batch, on two equal devices.
struct SixBlocks {
  explicit SixBlocks(int64_t cap_mib) : graph(testing::row_of_blocks(6)) {
    CostTable costs = testing::random_costs(graph, 1, 1);
    for (auto& [name, cost] : costs.blocks) {
      cost = {};
      cost.forward.median = Nanos{1'000'000};
      cost.backward_input.median = cost.backward_weight.median = Nanos{1'000'000};
      cost.keeps_input = {false};
      cost.saved_internal = Bytes{10 * kOutlookMiB};
    }
    cluster.name = "two";
    cluster.link.bandwidth = 1e18;
    cluster.devices.assign(2, {.name = "card",
                               .kind = "cpu",
                               .memory = Bytes{cap_mib * kOutlookMiB},
                               .op_latency = {},
                               .base = {},
                               .comm_buffer_per_peer = {}});
    request.costs.emplace_back(costs);
    request.schedules = {"1f1b"};
    request.options.batch = 4;
    request.preference = Preference::kTime;
  }
  std::vector<std::string> lines() const {
    return outlook(graph, cluster, request, find_front(graph, cluster, request));
  }

  BlockGraph graph;
  Cluster cluster;
  FrontRequest request;
};

TEST(Outlook, SaysWhatAMicroBatchADeviceAndRecomputeBuy) {
  const SixBlocks six(10'000);
  // Two stages: 4 x 9 ms and 9 ms to fill and drain. Five micro-batches: 5 x 9 + 9.
  EXPECT_THAT(six.lines(), Contains("a micro-batch more (batch 5): 10.8 ms a sample instead of "
                                    "11.2 ms, as much on the fullest rank"));
  // Three stages: 4 x 6 ms and 2 x 6 ms.
  EXPECT_THAT(six.lines(), Contains(HasSubstr("a device more (card): 36.0 ms a step instead of "
                                              "45.0 ms for the fastest plan, ")));
  EXPECT_THAT(six.lines(), Contains(HasSubstr(" run again: ")));
}

TEST(Outlook, SaysWhenAMicroBatchMoreDoesNotFit) {
  SixBlocks six(10'000);
  six.request.schedules = {"gpipe"};  // holds every micro-batch
  six.request.options.may_recompute = false;
  const Front front = find_front(six.graph, six.cluster, six.request);
  for (Device& device : six.cluster.devices)
    device.memory = front.plans[front.chosen].solution.peak();
  EXPECT_THAT(six.lines(), Contains(HasSubstr("a micro-batch more (batch 5): does not fit with "
                                              "these stages, rank ")));
}

TEST(Outlook, PromisesNoDeviceWhereTheNumberOfStagesIsGiven) {
  SixBlocks six(10'000);
  six.request.options.stages = 2;
  EXPECT_THAT(six.lines(), Not(Contains(HasSubstr("a device more"))));
}

}  // namespace
}  // namespace stagecraft
