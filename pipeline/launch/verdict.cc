#include "pipeline/launch/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

namespace stagecraft {
namespace {

std::string signal_label(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal)
                         : fmt::format("signal {} (SIG{})", signal, name);
}

bool known_code(int code) {
  return (code >= static_cast<int>(ExitCode::kUsage) &&
          code <= static_cast<int>(ExitCode::kInternal)) ||
         code == static_cast<int>(ExitCode::kInterrupted) ||
         code == static_cast<int>(ExitCode::kTerminated);
}

}  // namespace

bool left_orderly(const RankEnd& end) {
  return end.signal == 0 && end.progress.goodbye &&
         (end.exit_code == 0 || end.exit_code == static_cast<int>(ExitCode::kInterrupted) ||
          end.exit_code == static_cast<int>(ExitCode::kTerminated));
}

bool is_secondary(const RankEnd& end) {
  return end.signal == 0 && end.exit_code != 0 && end.progress.has_error && end.progress.secondary;
}

int culprit_of_stall(const std::vector<StalledRank>& ranks, int first) {
  const auto likelihood = [first](const StalledRank& one) {
    if (one.stopped) return 4;
    if (!waits_for_others(one.section)) return 3;
    if (one.section == Section::kSave && one.rank == 0) return 2;
    return one.rank == first ? 1 : 0;
  };
  const auto culprit = std::ranges::max_element(ranks, {}, likelihood);
  return culprit == ranks.end() ? first : culprit->rank;
}

ExitCode code_of(const RankEnd& end) {
  if (end.signal != 0 || !known_code(end.exit_code)) return ExitCode::kRankDied;
  return static_cast<ExitCode>(end.exit_code);
}

std::string rank_label(int rank, const std::vector<std::string>& labels) {
  if (rank < static_cast<int>(labels.size()) && !labels[rank].empty()) {
    return fmt::format("rank {} ({})", rank, labels[rank]);
  }
  return fmt::format("rank {}", rank);
}

std::string describe_place(const ProgressSnapshot& progress) {
  std::string text;
  if (progress.step >= 0) text += fmt::format("step {}, ", progress.step);
  text += fmt::format("section {}", section_name(progress.section));
  if (!progress.operation.empty()) text += fmt::format(", last operation {}", progress.operation);
  return text;
}

std::string describe_end(const RankEnd& end, const std::vector<std::string>& labels) {
  const std::string who = rank_label(end.rank, labels), where = describe_place(end.progress);
  if (end.signal != 0)
    return fmt::format("{} was killed by {} in {}", who, signal_label(end.signal), where);
  if (end.exit_code == 0) return fmt::format("{} left before the end, in {}", who, where);
  if (end.progress.has_error)
    return fmt::format("{} failed in {}: {}", who, where, end.progress.error_text);
  return fmt::format("{} exited with code {} in {}", who, end.exit_code, where);
}

}  // namespace stagecraft
