#include "pipeline/exec/transfers.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "partitioner/base/error.h"

namespace stagecraft {

void Transfers::post_receive(int index, std::vector<at::Tensor> buffers) {
  const Message& message = message_at(index);
  const auto tensors = std::make_shared<std::vector<at::Tensor>>(std::move(buffers));
  std::vector<std::span<std::byte>> pieces;
  for (at::Tensor& tensor : *tensors) {
    pieces.push_back({static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  }
  enter_boundary(*tensors);
  auto operation = comm_.receive(message.src_rank, {.step = step_, .message = index},
                                 std::move(pieces), tensors);
  receives_.push_back({index, std::move(operation), tensors});
}

std::optional<Transfers::Arrived> Transfers::finish_receive(Direction direction, int value,
                                                            int micro_batch) {
  const auto brings = [&](const Receive& receive) {
    const Message& message = message_at(receive.index);
    return message.direction == direction && message.micro_batch == micro_batch &&
           std::any_of(message.items.begin(), message.items.end(),
                       [&](const MessageItem& item) { return item.value == value; });
  };
  const auto found = std::find_if(receives_.begin(), receives_.end(), brings);
  if (found == receives_.end()) return std::nullopt;
  wait_for(found->index, *found->operation, ActionKind::kReceive);
  const Receive done = std::move(*found);
  receives_.erase(found);
  leave_boundary(*done.tensors);
  return Arrived{message_at(done.index), std::move(*done.tensors)};
}

void Transfers::post_send(int index, std::vector<at::Tensor> tensors) {
  while (sends_.size() >= static_cast<size_t>(kSendsInFlight)) finish_first_send();
  const Message& message = message_at(index);
  std::vector<std::span<const std::byte>> pieces;
  for (const at::Tensor& tensor : tensors) {
    check(tensor.is_contiguous(), "a tensor that is sent is not contiguous");
    pieces.push_back({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  const auto held = std::make_shared<std::vector<at::Tensor>>(std::move(tensors));
  enter_boundary(*held);
  auto operation =
      comm_.send(message.dst_rank, {.step = step_, .message = index}, std::move(pieces), held);
  sends_.push_back({index, std::move(operation), held});
}

void Transfers::finish_sends() {
  while (!sends_.empty()) finish_first_send();
}

void Transfers::finish_first_send() {
  const Send& first = sends_.front();
  wait_for(first.index, *first.operation, ActionKind::kSend);
  leave_boundary(*first.tensors);
  sends_.pop_front();
}

void Transfers::enter_boundary(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (++messages_with_[tensor.const_data_ptr()] == 1) {
      boundary_ += Bytes{static_cast<int64_t>(tensor.nbytes())};
    }
  }
}

void Transfers::leave_boundary(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const auto entry = messages_with_.find(tensor.const_data_ptr());
    check(entry != messages_with_.end(), "a tensor leaves the boundary that never entered it");
    if (--entry->second > 0) continue;
    boundary_ -= Bytes{static_cast<int64_t>(tensor.nbytes())};
    messages_with_.erase(entry);
  }
}

void Transfers::wait_for(int index, Operation& operation, ActionKind kind) const {
  if (before_wait) before_wait(kind);
  operation.wait();
  if (after_wait) after_wait();
  if (on_done) on_done(index, operation.on_its_way());
}

}  // namespace stagecraft
