// The steps of `make_schedule` for whoever has the flow of the placement already: a search makes
// many schedules, and deriving the flow is most of the work.
//
// As in schedule.h, where the same functions derive it.
#pragma once

#include <string_view>
#include <vector>

#include "partitioner/schedule/flow.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {

std::vector<std::vector<Action>> generate_order(std::string_view generator, const Flow& flow,
                                                const Placement& placement, int micro_batches);
std::vector<Message> message_table(const BlockGraph& graph, const Flow& flow,
                                   const Placement& placement,
                                   const std::vector<int64_t>& micro_batch_sizes);
Schedule insert_messages(const BlockGraph& graph, const Flow& flow, const Placement& placement,
                         const std::vector<std::vector<Action>>& order,
                         const std::vector<int64_t>& micro_batch_sizes,
                         int receive_ahead = kReceiveAhead);
Schedule make_schedule(std::string_view generator, const BlockGraph& graph, const Flow& flow,
                       const Placement& placement, const std::vector<int64_t>& micro_batch_sizes);

}  // namespace stagecraft
