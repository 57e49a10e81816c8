// Why this plan, in sentences that follow from the report's numbers alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

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

std::vector<std::string> alternative_sentences(const Report& report, Bytes fullest) {
  std::vector<const Alternative*> fitting;
  std::string misfits;
  for (const Alternative& other : report.alternatives) {
    if (other.fits() && !other.trains_the_same()) continue;
    if (other.fits()) {
      fitting.push_back(&other);
    } else {
      misfits += fmt::format("{}{} ({} on a device of {})", misfits.empty() ? "" : "; ", other.name,
                             mib_text(other.memory), mib_text(other.device_memory));
    }
  }
  std::vector<std::string> sentences;
  if (!misfits.empty()) sentences.push_back("Would not fit: " + misfits + ".");
  if (fitting.empty()) return sentences;
  const Alternative& fastest = **std::ranges::min_element(fitting, {}, &Alternative::step);
  const Alternative& leanest = **std::ranges::min_element(fitting, {}, &Alternative::memory);
  const std::string takes = fmt::format(
      "{} takes {}, {} time, and holds {}", fastest.name, millis_text(fastest.step),
      against(as_double(fastest.step), as_double(report.step)), mib_text(fastest.memory));
  sentences.push_back(
      fastest.step < report.step
          ? fmt::format("Another way would be faster: {}.", takes)
          : fmt::format("No other way that fits is faster: the nearest, {}.", takes));
  if (leanest.memory < fullest) {
    sentences.push_back(fmt::format(
        "Another way would hold less: {} takes {} on its fullest device, {} memory, and {}.",
        leanest.name, mib_text(leanest.memory),
        against(as_double(leanest.memory), as_double(fullest)), millis_text(leanest.step)));
  }
  return sentences;
}

}  // namespace

std::vector<std::string> reasons_of(const Report& report) {
  std::vector<std::string> reasons = {fit_sentence(report)};
  if (std::string text = front_sentence(report.front); !text.empty()) {
    reasons.push_back(std::move(text));
  }
  Bytes fullest;
  for (const ReportRank& rank : report.ranks) {
    fullest = std::max(fullest, rank.predicted.memory.total());
  }
  std::ranges::move(alternative_sentences(report, fullest), std::back_inserter(reasons));
  return reasons;
}

}  // namespace stagecraft
