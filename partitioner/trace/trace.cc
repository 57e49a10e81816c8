#include "partitioner/trace/trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string micros(Nanos time) {
  const char* sign = time.count < 0 ? "-" : "";
  const uint64_t nanos =
      time.count < 0 ? -static_cast<uint64_t>(time.count) : static_cast<uint64_t>(time.count);
  return fmt::format("{}{}.{:03}", sign, nanos / 1000, nanos % 1000);
}

class TraceText {
 public:
  explicit TraceText(const Trace& trace) : trace_(trace) {
    for (const TraceProcess& process : trace.processes) {
      first_thread_.push_back(threads_);
      threads_ += process.tracks.size();
    }
  }

  std::string text() {
    for (size_t p = 0; p < trace_.processes.size(); ++p) add_names(p);
    for (const TraceEvent& event : trace_.events) add_event(event);
    for (size_t a = 0; a < trace_.arrows.size(); ++a) add_arrow(a);
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + lines_ + "\n]}\n";
  }

 private:
  // Viewers tell threads apart by their number alone, so it is one of its own for every track.
  std::string place(size_t process, size_t track) const {
    check(process < trace_.processes.size() && track < trace_.processes[process].tracks.size(),
          "an event of a trace is on no track");
    return fmt::format("\"pid\":{},\"tid\":{}", process, first_thread_[process] + track + 1);
  }
  std::string place(const TraceEvent& event) const {
    return place(static_cast<size_t>(event.process), static_cast<size_t>(event.track));
  }

  void add(const std::string& line) {
    if (!lines_.empty()) lines_ += ",\n";
    lines_ += line;
  }

  void add_names(size_t p) {
    const TraceProcess& process = trace_.processes[p];
    add(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", p,
                    quoted(process.name)));
    add(fmt::format(
        R"({{"ph":"M","pid":{0},"name":"process_sort_index","args":{{"sort_index":{0}}}}})", p));
    for (size_t t = 0; t < process.tracks.size(); ++t) {
      add(fmt::format(R"({{"ph":"M",{},"name":"thread_name","args":{{"name":{}}}}})", place(p, t),
                      quoted(process.tracks[t])));
      add(fmt::format(R"({{"ph":"M",{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
                      place(p, t), t));
    }
  }

  void add_event(const TraceEvent& event) {
    std::string arguments;
    for (const auto& [name, value] : event.arguments) {
      arguments += fmt::format("{}{}:{}", arguments.empty() ? "" : ",", quoted(name), value);
    }
    add(fmt::format(R"({{"ph":"X",{},"ts":{},"dur":{},"name":{},"cat":{},"args":{{{}}}}})",
                    place(event), micros(event.start), micros(event.duration), quoted(event.name),
                    quoted(event.category), arguments));
  }

  void add_arrow(size_t number) {
    const TraceArrow& arrow = trace_.arrows[number];
    check(arrow.from < trace_.events.size() && arrow.to < trace_.events.size(),
          "an arrow of a trace has no event at its end");
    const TraceEvent& from = trace_.events[arrow.from];
    const TraceEvent& to = trace_.events[arrow.to];
    add(fmt::format(R"({{"ph":"s","id":{},{},"ts":{},"name":{},"cat":"arrow"}})", number,
                    place(from), micros(from.start), quoted(from.name)));
    add(fmt::format(R"({{"ph":"f","bp":"e","id":{},{},"ts":{},"name":{},"cat":"arrow"}})", number,
                    place(to), micros(to.start), quoted(from.name)));
  }

  const Trace& trace_;
  std::vector<size_t> first_thread_;
  size_t threads_ = 0;
  std::string lines_;
};

}  // namespace

std::string to_json(const Trace& trace) { return TraceText(trace).text(); }

}  // namespace stagecraft
