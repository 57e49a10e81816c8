// A timeline as a file that ui.perfetto.dev and chrome://tracing open: the JSON of the Trace Event
// Format (Google, "Trace Event Format", complete events `X`, flow events `s` and `f`, metadata
// `M`).
//
// Plain values and a pure function, any thread. Times of all events count from one zero.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "partitioner/base/units.h"

namespace stagecraft {

struct TraceProcess {
  std::string name;                 // "rank 0, rtx3090"
  std::vector<std::string> tracks;  // names of its rows, from above
  bool operator==(const TraceProcess&) const = default;
};

// Something with a length. Events of one track may stand one inside the other, but do not cross.
struct TraceEvent {
  std::string name;            // "F0.2"
  std::string category;        // "forward"
  int process = 0, track = 0;  // indices into Trace::processes and its tracks
  Nanos start, duration;
  std::vector<std::pair<std::string, int64_t>> arguments;  // shown beside a selected event
  bool operator==(const TraceEvent&) const = default;
};

// From the start of one event to the start of another: a message from its send to its receive.
struct TraceArrow {
  size_t from = 0, to = 0;  // indices into Trace::events
  bool operator==(const TraceArrow&) const = default;
};

struct Trace {
  std::vector<TraceProcess> processes;
  std::vector<TraceEvent> events;
  std::vector<TraceArrow> arrows;
  bool operator==(const Trace&) const = default;
};

// One event a line; times in microseconds with three decimals, as the format wants them. Bytes that
// are no UTF-8 become U+FFFD. Throws InternalError for an index that names nothing.
std::string to_json(const Trace& trace);

}  // namespace stagecraft
