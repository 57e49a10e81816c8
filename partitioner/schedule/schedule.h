// A schedule as data: one ordered action list per rank, and the table of messages it exchanges.
//
// The same list is what the verifier proves, the simulator times, the executor runs and the trace
// shows. Plain values, any thread. Terms and the 1F1B order: Narayanan et al., PipeDream-2BW /
// Megatron-LM (2021); GPipe: Huang et al. (2019).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"

namespace stagecraft {

enum class ActionKind {
  kForward,         // F
  kBackwardInput,   // I: gradients of inputs only
  kBackwardWeight,  // W: gradients of weights, after I
  kBackward,        // B: I and W together
  kSend,            // S
  kReceive,         // R
  kReduce,          // gradients of replicas are summed (nothing to do with one replica)
  kStep,            // clip and optimizer step
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;  // compute actions; for messages the stage the message belongs to on this rank
  int micro_batch = 0;
  int step_offset = 0;  // 1: frozen work of the next step
  int replica = 0;
  int message = -1;  // index into Schedule::messages, for kSend and kReceive
  int group = 0;     // neighbouring messages of one group (not 0) start as one
  bool operator==(const Action&) const = default;
};

inline bool is_message(const Action& action) {
  return action.kind == ActionKind::kSend || action.kind == ActionKind::kReceive;
}
inline bool is_compute(const Action& action) {  // what has a stage and a micro-batch of its own
  return !is_message(action) && action.kind != ActionKind::kReduce &&
         action.kind != ActionKind::kStep;
}

// A tensor inside a message: a value's activation going forward, or its (partial) gradient going
// back.
struct MessageItem {
  int value = -1;
  bool operator==(const MessageItem&) const = default;
};

enum class Direction { kForward, kBackward };

// All tensors that go from one stage's action to one rank, packed. Forward: outputs of F(src_stage,
// mb). Backward: gradient sums known after B(src_stage, mb); where consumers of a value sit on
// several stages, the partial sum travels from stage to stage, last first (a *fold*), and ends at
// the producer.
struct Message {
  Direction direction = Direction::kForward;
  int src_stage = -1, src_rank = -1;
  int dst_stage = -1, dst_rank = -1;  // dst_stage: the first stage on dst_rank to use it
  int micro_batch = 0;
  std::vector<MessageItem> items;  // ascending value
  Bytes bytes;
  bool operator==(const Message&) const = default;
};

struct Schedule {
  std::vector<Message> messages;
  std::vector<std::vector<Action>> ranks;  // per rank, in order
  bool operator==(const Schedule&) const = default;
};

// So many sends of a rank may be under way; a further S waits for the oldest. Bounds what a slow
// link can hold.
inline constexpr int kSendsInFlight = 4;
// A receive stands at most so many compute actions before its first use.
inline constexpr int kReceiveAhead = 2;

// Samples of each micro-batch: `batch` split in steps of `micro_batch`, the last may be smaller.
std::vector<int64_t> micro_batch_sizes(int64_t batch, int64_t micro_batch);

// Compute order per rank, without messages. `gpipe`: all forwards, then all backwards. `1f1b`:
// stage s of p warms up with min(m, p - 1 - s) forwards, then alternates. Both end with kStep.
// Backwards of a stage are in ascending micro-batch. A stage whose blocks are all F has no backward
// action. With several stages on a rank their lists are merged in the order in which a unit-cost
// simulation starts them. Throws ConfigError for an unknown generator name.
std::vector<std::vector<Action>> generate_order(std::string_view generator, const BlockGraph& graph,
                                                const Placement& placement, int micro_batches);
std::vector<std::string> generator_names();
// The most micro-batches that a stage of a generated order holds at once: forwards without their
// backward. Throws as `generate_order`.
int64_t micro_batches_in_flight(std::string_view generator, int stage, int stages,
                                int64_t micro_batches);

// Inserts messages into a compute order. All events (compute, messages) are put into one global
// linear order by the start time in a unit-cost simulation, a message where its producer ends but
// at most `receive_ahead` compute actions ahead of its consumer (what the first actions of a rank
// use is not held back), F of a stage without gradients
// right before the first message that wants it; each rank's list is the restriction of that order
// to the rank. Hence, without any buffering, the globally smallest unfinished event can always run:
// no deadlock (docs/schedule.md has the proof). Throws ConfigError when the order itself cannot run
// (a cycle), naming the wait-for cycle.
Schedule insert_messages(const BlockGraph& graph, const Placement& placement,
                         const std::vector<std::vector<Action>>& order,
                         const std::vector<int64_t>& micro_batch_sizes,
                         int receive_ahead = kReceiveAhead);

// The schedule that a plan names a generator for: its order with messages inserted.
Schedule make_schedule(std::string_view generator, const BlockGraph& graph,
                       const Placement& placement, const std::vector<int64_t>& micro_batch_sizes);

// What stage-to-stage transfers one micro-batch needs, derived from graph and placement: for each
// (source stage, direction, destination rank) the packed values. `insert_messages` repeats them for
// every micro-batch.
std::vector<Message> transfers_of_micro_batch(const BlockGraph& graph, const Placement& placement,
                                              int64_t samples);

// The message table of a step: `transfers_of_micro_batch` of every micro-batch. Sorted by
// (micro-batch, direction, source stage, destination rank); the position is the message's number,
// whatever the order of actions.
std::vector<Message> message_table(const BlockGraph& graph, const Placement& placement,
                                   const std::vector<int64_t>& micro_batch_sizes);

// A schedule from an order that has its S and R already: sets the table, and stage and micro-batch
// of each S and R. Nothing else is checked: `verify` does. Throws ConfigError for a number that is
// not in the table.
Schedule complete_order(const BlockGraph& graph, const Placement& placement,
                        const std::vector<std::vector<Action>>& order,
                        const std::vector<int64_t>& micro_batch_sizes);

// "F0.2" (stage 0, micro-batch 2), "B1.0", "I1.0", "W1.0", "S7", "R7" (message index), "step",
// "reduce".
std::string to_string(const Action& action);
// Reads the same text; throws ConfigError naming the text and what is allowed.
Action parse_action(std::string_view text);

}  // namespace stagecraft
