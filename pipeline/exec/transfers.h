// The messages of a step that are under way on one rank: receives that are posted, sends that are
// not over.
//
// Owned and used by the executor's thread. Order and number of messages are the action list's; the
// transport sees them in the order of the posts. Tensors are held until their transfer is over.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/schedule/schedule.h"
#include "pipeline/comm/communicator.h"

namespace stagecraft {

class Transfers {
 public:
  // One tensor for each item of the message.
  struct Arrived {
    const Message& message;
    std::vector<at::Tensor> tensors;
  };

  // Both outlive this.
  Transfers(const Schedule& schedule, Communicator& comm) : schedule_(schedule), comm_(comm) {}

  // Messages posted from now on carry this step in their tags.
  void begin(int64_t step) { step_ = step; }

  // `buffers`: contiguous, one for each item of message `index`, to be filled.
  void post_receive(int index, std::vector<at::Tensor> buffers);
  // Waits for the posted message that brings `value`; nothing when none is posted.
  std::optional<Arrived> finish_receive(Direction direction, int value, int micro_batch);

  // Waits first until fewer than kSendsInFlight sends are under way. `tensors` as above.
  void post_send(int index, std::vector<at::Tensor> tensors);
  void finish_sends();

  bool all_received() const { return receives_.empty(); }
  // Posted and not yet received, and handed to a send that is not over: each tensor once, however
  // many messages it is in.
  Bytes boundary() const { return boundary_; }

  // Called with kSend or kReceive before the rank waits for a peer, and `after_wait` when it goes
  // on. Either may be empty.
  std::function<void(ActionKind)> before_wait;
  std::function<void()> after_wait;
  // Called with each message of the table whose transfer is over. May be empty.
  std::function<void(int message, TransferSpan)> on_done;

 private:
  using Tensors = std::shared_ptr<std::vector<at::Tensor>>;
  struct Receive {
    int index;  // of the message
    std::shared_ptr<Operation> operation;
    Tensors tensors;
  };
  struct Send {
    int index;
    std::shared_ptr<Operation> operation;
    Tensors tensors;
  };

  const Message& message_at(int index) const {
    return schedule_.messages[static_cast<size_t>(index)];
  }
  void wait_for(int index, Operation& operation, ActionKind kind) const;
  void finish_first_send();
  void enter_boundary(const std::vector<at::Tensor>& tensors);
  void leave_boundary(const std::vector<at::Tensor>& tensors);

  const Schedule& schedule_;
  Communicator& comm_;
  int64_t step_ = 0;
  std::list<Receive> receives_;
  std::deque<Send> sends_;
  std::unordered_map<const void*, int> messages_with_;  // those under way that hold this memory
  Bytes boundary_;
};

}  // namespace stagecraft
