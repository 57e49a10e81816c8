#include "partitioner/plan/ddp.h"

#include <fmt/format.h>

#include <algorithm>

#include "partitioner/base/format.h"

namespace stagecraft {
namespace {

constexpr int64_t kFp32 = 4;

struct PartCount {
  std::string part;
  int64_t all = 0;
  int64_t trained =
      0;  // trainable, with a path to the loss (without one the gradient is None and Adam skips it)
  int64_t unused =
      0;  // frozen, but the backward pass goes through: a gradient comes out and nobody uses it
};

std::vector<PartCount> count_parts(const BlockGraph& graph) {
  std::vector<PartCount> parts;
  for (const Block& block : graph.blocks) {
    auto part = std::ranges::find(parts, block.part, &PartCount::part);
    if (part == parts.end()) part = parts.insert(parts.end(), PartCount{.part = block.part});
    const int64_t n = block.parameters();
    part->all += n;
    if (block.trainable && block.reaches_loss) part->trained += n;
    if (!block.trainable && block.state == BlockState::kFI) part->unused += n;
  }
  return parts;
}

}  // namespace

AccountLine MemoryAccount::sum() const {
  AccountLine sum{.name = "sum", .one_device = {}, .data_parallel = {}};
  for (const AccountLine& line : lines) {
    sum.one_device += line.one_device;
    sum.data_parallel += line.data_parallel;
  }
  return sum;
}

MemoryAccount known_trainers_account(const BlockGraph& graph, const OtherParameters& other) {
  MemoryAccount account;
  const auto both = [&account](const std::string& name, int64_t elements, int64_t bytes_each) {
    const Bytes bytes{elements * bytes_each};
    if (elements > 0) account.lines.push_back({name, bytes, bytes});
  };
  const std::vector<PartCount> parts = count_parts(graph);
  int64_t all = 0, trained = 0;
  for (const PartCount& part : parts) {
    both("weights: " + part.part, part.all, kFp32);
    all += part.all;
    trained += part.trained;
  }
  both("weights: vae", other.vae, kFp32);
  both("weights: text encoder", other.text_encoder, kFp32);
  for (const PartCount& part : parts) both("gradients: " + part.part, part.trained, kFp32);
  for (const PartCount& part : parts) {
    both(fmt::format("gradients nobody uses: {}", part.part), part.unused, kFp32);
  }
  both("Adam m, v", trained, 2 * kFp32);
  account.lines.push_back(
      {fmt::format("DDP reducer buckets, {} elements", grouped(all)), {}, {all * kFp32}});
  return account;
}

MemoryAccount done_right_account(const RankMemory& one_device, const RankMemory& data_parallel) {
  MemoryAccount account;
  for (int i = 0; i < kMemoryLines; ++i) {
    const auto line = static_cast<MemoryLine>(i);
    if (one_device[line].count + data_parallel[line].count == 0) continue;
    account.lines.push_back({std::string(to_string(line)), one_device[line], data_parallel[line]});
  }
  return account;
}

}  // namespace stagecraft
