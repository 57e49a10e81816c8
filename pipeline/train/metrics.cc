#include "pipeline/train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string_view>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "pipeline/train/console.h"

namespace stagecraft {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// JSON knows no infinity.
std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path)
    : path_(path),
      descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (!descriptor_) {
    throw InputError(ExitCode::kIo, fmt::format("{}: {}", path_, std::strerror(errno)));
  }
}

void MetricsFile::write(const StepMetrics& metrics) {
  const std::string line = fmt::format(
      "{{\"step\":{},\"loss\":{},\"gradient_norm\":{},\"learning_rate\":{},\"seconds\":{},"
      "\"samples_per_second\":{},\"fullest_rank_mib\":{:.1f}}}\n",
      metrics.step, json_number(metrics.loss), json_number(metrics.gradient_norm),
      json_number(metrics.learning_rate), json_number(metrics.seconds),
      json_number(static_cast<double>(metrics.samples) / metrics.seconds),
      metrics.fullest_rank.mib());
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = ::write(descriptor_.get(), line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw InputError(ExitCode::kIo, fmt::format("{}: {}", path_, std::strerror(errno)));
    done += static_cast<size_t>(count);
  }
}

void keep_metrics_before(const std::string& path, int64_t step) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    int64_t of_line = -1;
    constexpr std::string_view kBegin = "{\"step\":";
    if (file.eof() || !line.starts_with(kBegin)) continue;
    std::from_chars(line.data() + kBegin.size(), line.data() + line.size(), of_line);
    if (of_line >= 0 && of_line < step) kept += line + '\n';
  }
  write_file_atomically(path, kept);
}

ProgressLine::ProgressLine(int64_t steps)
    : steps_(steps), terminal_(::isatty(STDOUT_FILENO) == 1), started_(now_seconds()) {}

void ProgressLine::show(const StepMetrics& metrics) {
  const double now = now_seconds();
  if (first_step_ < 0) first_step_ = metrics.step;
  const bool last = metrics.step + 1 == steps_;
  if (!last && last_shown_ != 0 && now - last_shown_ < (terminal_ ? 0.1 : 1.0)) return;
  last_shown_ = now;
  const auto done = static_cast<double>(metrics.step + 1 - first_step_);
  const double per_step = (now - started_) / done;
  const std::string text = fmt::format(
      "step {}/{}  loss {:.4f}  {:.2f} samples/s  ETA {}  fullest rank {:.0f} MiB",
      metrics.step + 1, steps_, metrics.loss, static_cast<double>(metrics.samples) / per_step,
      duration(per_step * static_cast<double>(steps_ - metrics.step - 1)),
      metrics.fullest_rank.mib());
  say(terminal_ ? fmt::format("\r\033[K{}", text) : text + '\n');
  open_ = terminal_;
}

void ProgressLine::finish() {
  if (open_) say("\n");
  open_ = false;
}

}  // namespace stagecraft
