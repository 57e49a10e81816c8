#include "pipeline/profile/profiler.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <vector>

#include "models/torch/runner.h"
#include "models/weights/weight_source.h"
#include "partitioner/base/error.h"
#include "pipeline/exec/block_autograd.h"
#include "pipeline/exec/thread_clock.h"
#include "pipeline/exec/tracking_allocator.h"

namespace stagecraft {
namespace {

using Clock = std::chrono::steady_clock;

// Above these, times of one machine differ by more than a split's stages should.
constexpr double kMuchWaiting = 0.10, kWideSpread = 0.10;

struct Moment {
  Clock::time_point wall;
  Nanos cpu;  // of the calling thread
};
Moment now() { return {.wall = Clock::now(), .cpu = thread_cpu_time()}; }

// Wall and processor time of all counted runs.
struct Elapsed {
  Nanos wall, cpu;
};

Timing summarize(std::vector<Nanos> times) {
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  const size_t last = times.size() - 1;
  return {.median = times[times.size() / 2],
          .spread = {(times[last * 3 / 4].count - times[last / 4].count) / 2}};
}

// Two blocks with the same key do the same work.
std::string shape_key(const BlockGraph& graph, const Block& block) {
  std::string key = fmt::format("{} {}", to_string(block.state), block.trainable);
  for (const bool wanted : inputs_with_gradient(graph, block)) key += wanted ? "g" : "-";
  for (const LocalTensor& tensor : block.tensors) {
    key += '|';
    for (const int64_t extent : tensor.shape) key += fmt::format("{},", extent);
  }
  for (const Op& op : block.ops) {
    key += fmt::format("|{} {}:", to_string(op.kind), op.output);
    for (const int input : op.inputs) key += fmt::format("{},", input);
    for (const int64_t number : op.ints) key += fmt::format("{};", number);
  }
  return key;
}

class BlockMeter {
 public:
  BlockMeter(const BlockGraph& graph, const Block& block, int64_t micro_batch)
      : block_(block),
        wanted_(inputs_with_gradient(graph, block)),
        is_alone_(at::get_num_threads() == 1) {
    const auto source = random_weights(0);
    for (const Param& param : block.params) {
      at::Tensor weight = at::empty(param.shape, at::kFloat);
      source->read(param, {weight.mutable_data_ptr<float>(), static_cast<size_t>(weight.numel())});
      if (block.trainable) {
        weight.set_requires_grad(true);
        buffers_.push_back(at::zeros(param.shape, at::kFloat));
      }
      params_.push_back(std::move(weight));
    }
    for (const int index : block.inputs) {
      const Value& value = graph.values[static_cast<size_t>(index)];
      std::vector<int64_t> shape{micro_batch};
      shape.insert(shape.end(), value.shape.begin(), value.shape.end());
      inputs_.push_back(value.dtype == DType::kI64 ? at::full(shape, 500, at::kLong)
                                                   : at::randn(shape, at::kFloat));
    }
  }

  BlockCost measure(const ProfileOptions& options) {
    const bool has_backward = block_.reaches_loss && block_.state != BlockState::kF;
    for (int run = -options.warm_up; run < options.repetitions; ++run) {
      const bool counts = run >= 0;
      if (has_backward) {
        run_forward_and_backward(counts);
        if (block_.state == BlockState::kFIW) run_inputs_only(counts);
      } else {
        run_forward(counts);
      }
    }
    cost_.forward = summarize(forward_);
    const Timing both = summarize(backward_), inputs = summarize(backward_inputs_);
    switch (block_.state) {
      case BlockState::kF:
        break;
      case BlockState::kFI:
        cost_.backward_input = both;
        break;
      case BlockState::kFW:
        cost_.backward_weight = both;
        break;
      case BlockState::kFIW:
        cost_.backward_input = inputs;
        cost_.backward_weight = {.median = std::max(Nanos{0}, both.median - inputs.median),
                                 .spread = both.spread};
        break;
    }
    const SavedTensors saved = saved_for_backward(block_, wanted_);
    for (size_t i = 0; i < block_.inputs.size(); ++i) {
      cost_.keeps_input.push_back(
          has_backward &&
          std::binary_search(saved.tensors.begin(), saved.tensors.end(), static_cast<int>(i)));
    }
    const int out = block_.ops.back().output;
    cost_.keeps_output =
        has_backward && std::binary_search(saved.tensors.begin(), saved.tensors.end(), out);
    if (cost_.keeps_output) cost_.saved_internal -= cost_.output;
    cost_.parameters = Bytes{block_.parameters()} * size_of(DType::kF32);
    return cost_;
  }
  const Elapsed& elapsed() const { return elapsed_; }

 private:
  void run_forward(bool counts) {
    const Bytes before = start();
    const at::Tensor output = forward_only(block_, inputs_, params_);
    note_forward(before, output, counts);
  }

  void run_forward_and_backward(bool counts) {
    const Bytes before = start();
    BlockForward result = forward_with_tape(block_, inputs_, params_, wanted_);
    note_forward(before, result.output, counts);
    const at::Tensor gradient = at::randn_like(result.output);
    result.output = at::Tensor();
    cost_.saved_internal =
        TrackingAllocator::current() - before - Bytes{static_cast<int64_t>(gradient.nbytes())};
    cost_.workspace_forward -= cost_.saved_internal;
    const Bytes before_backward = start();
    BlockGradients gradients = backward_block(std::move(result.tape), gradient);
    accumulate(gradients);
    if (counts) count_time(backward_);
    Bytes stays;
    for (const at::Tensor& input : gradients.inputs) {
      if (input.defined()) stays += {static_cast<int64_t>(input.nbytes())};
    }
    // A sum hands its gradient on without a copy.
    cost_.workspace_backward =
        std::max(Bytes{0}, TrackingAllocator::mark() - before_backward - stays);
  }

  void run_inputs_only(bool counts) {
    BlockForward result = forward_with_tape(block_, inputs_, params_, wanted_);
    const at::Tensor gradient = at::randn_like(result.output);
    start();
    const BlockGradients gradients = backward_inputs(result.tape, gradient);
    if (counts) count_time(backward_inputs_);
  }

  Bytes start() {
    TrackingAllocator::reset_mark();
    start_ = now();
    return TrackingAllocator::current();
  }

  void count_time(std::vector<Nanos>& times) {
    const Moment end = now();
    const auto wall =
        std::chrono::duration_cast<std::chrono::nanoseconds>(end.wall - start_.wall).count();
    const Nanos cpu = end.cpu - start_.cpu;
    elapsed_.wall += {wall};
    elapsed_.cpu += cpu;
    times.push_back(is_alone_ ? cpu : Nanos{wall});
  }

  void note_forward(Bytes before, const at::Tensor& output, bool counts) {
    if (counts) count_time(forward_);
    cost_.output = {static_cast<int64_t>(output.nbytes())};
    cost_.workspace_forward = TrackingAllocator::mark() - before - cost_.output;
  }

  void accumulate(BlockGradients& gradients) {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < gradients.params.size(); ++i) {
      if (gradients.params[i].defined()) buffers_[i].add_(gradients.params[i]);
    }
  }

  const Block& block_;
  const std::vector<bool> wanted_;
  const bool is_alone_;  // one thread
  std::vector<at::Tensor> params_, buffers_, inputs_;
  std::vector<Nanos> forward_, backward_, backward_inputs_;
  Moment start_;
  Elapsed elapsed_;
  BlockCost cost_;
};

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

}  // namespace

std::string describe_machine() {
  return fmt::format("{}, {} thread{}, LibTorch 2.11.0", cpu_model(), at::get_num_threads(),
                     at::get_num_threads() == 1 ? "" : "s");
}

Profile measure_blocks(const BlockGraph& graph, const TrainConfig& train,
                       const ProfileOptions& options) {
  if (train.precision != "fp32") {
    throw ConfigError(fmt::format(
        "precision {} cannot be measured on a CPU, which would run it 6 to 150 times slower "
        "than a GPU: plan without --profile, or measure fp32",
        train.precision));
  }
  TrackingAllocator::install();
  CostTable table{.made_by = "measured",
                  .machine = describe_machine(),
                  .device = "cpu",
                  .precision = train.precision,
                  .width = graph.width,
                  .height = graph.height,
                  .micro_batch = train.micro_batch,
                  .graph_hash = graph_hash(graph),
                  .blocks = {}};
  std::map<std::string, std::vector<const Block*>> alike;
  for (const Block& block : graph.blocks) alike[shape_key(graph, block)].push_back(&block);
  int done = 0;
  Elapsed elapsed;
  Nanos spread, median;
  for (const auto& [key, blocks] : alike) {
    BlockMeter meter(graph, *blocks.front(), train.micro_batch);
    const BlockCost cost = meter.measure(options);
    for (const Block* block : blocks) table.blocks[block->name] = cost;
    elapsed.wall += meter.elapsed().wall;
    elapsed.cpu += meter.elapsed().cpu;
    for (const Timing* timing : {&cost.forward, &cost.backward_input, &cost.backward_weight}) {
      spread += timing->spread;
      median += timing->median;
    }
    if (options.on_progress) options.on_progress(++done, static_cast<int>(alike.size()));
  }
  ProfileQuality quality;
  if (at::get_num_threads() == 1 && elapsed.wall.count > 0) {
    quality.waiting = std::max(0.0, 1 - elapsed.cpu.seconds() / elapsed.wall.seconds());
  }
  if (median.count > 0) quality.spread = spread.seconds() / median.seconds();
  return {.table = std::move(table), .quality = quality};
}

std::string busy_warning(const ProfileQuality& quality) {
  if (quality.waiting <= kMuchWaiting && quality.spread <= kWideSpread) return {};
  return fmt::format(
      "warning: the machine was busy while the blocks were measured ({:.0f} % of the time without "
      "a core, times spread by {:.0f} %); measure again when it is quiet",
      quality.waiting * 100, quality.spread * 100);
}

}  // namespace stagecraft
