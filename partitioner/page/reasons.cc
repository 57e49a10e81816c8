// Why this plan, in sentences that follow from the report's numbers alone.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "partitioner/base/format.h"
#include "partitioner/page/page.h"

namespace stagecraft {
namespace {

// "12.3 % less", "4.5 % more", "the same".
std::string against(double value, double reference) {
  const double percent = 100 * (value / reference - 1);
  if (std::abs(percent) < 0.05) return "the same";
  return fmt::format("{:.1f} % {}", std::abs(percent), percent < 0 ? "less" : "more");
}

double as_double(Bytes bytes) { return static_cast<double>(bytes.count); }
double as_double(Nanos time) { return static_cast<double>(time.count); }

std::string fit_sentence(const Report& report) {
  size_t over = 0;
  for (const ReportRank& rank : report.ranks) {
    if (rank.predicted.memory.total() > rank.predicted.device_memory) ++over;
  }
  if (over > 0) {
    return fmt::format("{} of {} ranks DO NOT FIT their devices.", over, report.ranks.size());
  }
  return report.ranks.size() == 1
             ? "The rank fits its device."
             : fmt::format("All {} ranks fit their devices.", report.ranks.size());
}

std::string front_sentence(const std::vector<FrontPoint>& front) {
  const auto chosen = std::ranges::find_if(front, &FrontPoint::is_chosen);
  if (chosen == front.end() || front.size() < 2) return {};
  const FrontPoint& fastest = *std::ranges::min_element(front, {}, &FrontPoint::step);
  const FrontPoint& leanest = *std::ranges::min_element(front, {}, &FrontPoint::peak);
  std::string text =
      fmt::format("Of {} plans of which none is beaten in both time and memory, ", front.size());
  if (*chosen == fastest) {
    return text + fmt::format("it is the fastest; the leanest takes {} time and {} memory.",
                              against(as_double(leanest.step), as_double(chosen->step)),
                              against(as_double(leanest.peak), as_double(chosen->peak)));
  }
  text += *chosen == leanest ? "it is the leanest" : "it stands between fastest and leanest";
  return text + fmt::format("; the fastest takes {} time and {} memory.",
                            against(as_double(fastest.step), as_double(chosen->step)),
                            against(as_double(fastest.peak), as_double(chosen->peak)));
}

std::string alternative_sentence(const Alternative& other, Nanos step) {
  if (!other.fits()) {
    return fmt::format("{} does not fit: {} on a device of {}.", other.name, mib_text(other.memory),
                       mib_text(other.device_memory));
  }
  return fmt::format("{} fits with {} and takes {}, {} time.", other.name, mib_text(other.memory),
                     millis_text(other.step), against(as_double(other.step), as_double(step)));
}

}  // namespace

std::vector<std::string> reasons_of(const Report& report) {
  std::vector<std::string> reasons = {fit_sentence(report)};
  if (std::string text = front_sentence(report.front); !text.empty()) {
    reasons.push_back(std::move(text));
  }
  for (const Alternative& other : report.alternatives) {
    std::string text = alternative_sentence(other, report.step);
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    reasons.push_back(std::move(text));
  }
  return reasons;
}

}  // namespace stagecraft
