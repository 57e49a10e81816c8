#include "pipeline/train/audit.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "models/weights/safetensors.h"
#include "partitioner/base/error.h"
#include "partitioner/base/sha256.h"
#include "pipeline/exec/optimizer.h"
#include "pipeline/train/audit_folder.h"

namespace stagecraft {
namespace {

using nlohmann::json;

std::span<const std::byte> raw_bytes(const at::Tensor& tensor) {
  check(tensor.is_contiguous(), "an audited tensor is not contiguous");
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

DType dtype_of(const at::Tensor& tensor) {
  const bool whole = tensor.scalar_type() == at::kLong;
  check(whole || tensor.scalar_type() == at::kFloat, "an audited tensor has an odd dtype");
  return whole ? DType::kI64 : DType::kF32;
}

// A tensor of the whole batch, put together from its micro-batches.
struct BatchTensor {
  TensorInfo info;
  std::vector<std::byte> bytes;
};

class AuditWriter : public StepObserver {
 public:
  AuditWriter(const Job& job, int rank, const RankParameters& parameters,
              std::function<void()> on_written)
      : job_(job), rank_(rank), parameters_(parameters), on_written_(std::move(on_written)) {}

  void begin(int64_t step, std::span<const Draw> draws) override {
    const auto& steps = job_.options.audit_steps;
    active_ = std::find(steps.begin(), steps.end(), step) != steps.end();
    if (!active_) return;
    step_ = step;
    batch_.clear();
    std::vector<int64_t> ids;
    for (const Draw& draw : draws) ids.insert(ids.end(), {draw.epoch, draw.sample});
    const auto bytes = std::as_bytes(std::span(ids));
    batch_["samples"] = {
        {.name = "samples", .dtype = DType::kI64, .shape = {static_cast<int64_t>(draws.size()), 2}},
        {bytes.begin(), bytes.end()}};
  }

  void data(std::string_view what, int micro_batch, const at::Tensor& tensor) override {
    if (!active_) return;
    const auto& sizes = job_.resolved.micro_batch_sizes;
    const auto here = sizes.begin() + micro_batch;
    check(tensor.size(0) == *here, "an audited tensor has another size than its micro-batch");
    const auto bytes = raw_bytes(tensor);
    const size_t of_sample = bytes.size() / static_cast<size_t>(*here);
    BatchTensor& whole = batch_[std::string(what)];
    if (whole.bytes.empty()) {
      const int64_t samples = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
      whole.info = {
          .name = std::string(what), .dtype = dtype_of(tensor), .shape = tensor.sizes().vec()};
      whole.info.shape[0] = samples;
      whole.bytes.resize(of_sample * static_cast<size_t>(samples));
    }
    const int64_t before = std::accumulate(sizes.begin(), here, int64_t{0});
    std::memcpy(whole.bytes.data() + of_sample * static_cast<size_t>(before), bytes.data(),
                bytes.size());
  }

  void gradients_ready(double norm) override {
    if (!active_) return;
    open(norm);
    for (const auto& [name, whole] : batch_) write(name, whole.bytes);
    batch_.clear();
    for_each_audited([&](const ParameterSlot& slot) {
      write("before." + slot.param->name, raw_bytes(slot.weight));
      if (slot.has_gradient) write("gradient." + slot.param->name, raw_bytes(slot.gradient));
      if (has_moments(slot)) {
        write("exp_avg." + slot.param->name, raw_bytes(slot.exp_avg));
        write("exp_avg_sq." + slot.param->name, raw_bytes(slot.exp_avg_sq));
      }
    });
  }

  void updated() override {
    if (!active_) return;
    active_ = false;
    for_each_audited([&](const ParameterSlot& slot) {
      write("after." + slot.param->name, raw_bytes(slot.weight));
    });
    writer_->finish();
    writer_.reset();
  }

 private:
  template <typename Work>
  void for_each_audited(Work&& work) const {
    for (const ParameterSlot& slot : parameters_.slots()) {
      if (slot.owned && slot.trainable) work(slot);
    }
  }

  // Steps that Adam has made of this parameter so far. Before the first one both moments are zero.
  static int64_t adam_steps(const ParameterSlot& slot) {
    return slot.steps.defined() ? static_cast<int64_t>(*slot.steps.const_data_ptr<float>()) : 0;
  }
  static bool has_moments(const ParameterSlot& slot) { return adam_steps(slot) > 0; }

  // Fixes the file's table from what the step brought. Nothing of the optimizer has run yet.
  void open(double norm) {
    std::vector<TensorInfo> table;
    for (const auto& [name, whole] : batch_) table.push_back(whole.info);
    json no_gradient = json::array(), adam = json::object(), frozen = json::object();
    for (const ParameterSlot& slot : parameters_.slots()) {
      const std::string& name = slot.param->name;
      if (!slot.trainable) {
        const auto bytes = raw_bytes(slot.weight);
        frozen[name] = sha256_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        on_written_();
      }
    }
    for_each_audited([&](const ParameterSlot& slot) {
      const std::string& name = slot.param->name;
      const auto add = [&](const char* what) {
        table.push_back({.name = what + name, .dtype = DType::kF32, .shape = slot.param->shape});
      };
      add("before.");
      add("after.");
      if (slot.has_gradient) {
        add("gradient.");
      } else {
        no_gradient.push_back(name);
      }
      adam[name] = adam_steps(slot);
      if (!has_moments(slot)) return;
      add("exp_avg.");
      add("exp_avg_sq.");
    });
    const json facts = {
        {"format", kAuditFormat},
        {"plan_hash", plan_hash(job_.plan)},
        {"rank", rank_},
        {"step", step_},
        {"learning_rate", learning_rate_at(job_.options.optimizer, step_)},
        {"gradient_norm", norm},
        {"no_gradient", no_gradient},
        {"adam_steps", adam},
        {"frozen_sha256", frozen},
    };
    const std::string folder = audit_step_folder(job_.options.audit, step_);
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
      throw InputError(ExitCode::kIo,
                       fmt::format("{}: cannot make the folder: {}", folder, failed.message()));
    }
    writer_.emplace(fmt::format("{}/rank_{}.safetensors", folder, rank_), table,
                    std::map<std::string, std::string>{{"stagecraft_audit", facts.dump()}});
  }

  void write(const std::string& name, std::span<const std::byte> bytes) {
    writer_->write(name, bytes);
    on_written_();
  }

  const Job& job_;
  const int rank_;
  const RankParameters& parameters_;
  const std::function<void()> on_written_;
  bool active_ = false;  // inside a step that is audited
  int64_t step_ = 0;
  std::map<std::string, BatchTensor> batch_;
  std::optional<SafetensorsWriter> writer_;
};

}  // namespace

std::unique_ptr<StepObserver> make_observer(const Job& job, int rank,
                                            const RankParameters& parameters,
                                            std::function<void()> on_written) {
  if (job.options.audit.empty()) return std::make_unique<StepObserver>();
  return std::make_unique<AuditWriter>(job, rank, parameters, std::move(on_written));
}

}  // namespace stagecraft
