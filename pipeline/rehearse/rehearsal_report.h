// What a rehearsal came to, beside the plan: the figures and how they are shown.
//
// Plain values and pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/base/units.h"
#include "pipeline/rehearse/rehearsal.h"

namespace stagecraft {

// Median, and half the distance between the quartiles, as `Timing` of a cost table.
Timing spread_of(std::vector<Nanos> samples);

struct RehearsedRank {
  std::vector<Nanos>
      end;  // of each step: from the first rank's start to the end of this one's list
  std::vector<Nanos> busy;  // of each step: inside blocks
  Bytes held, peak_rss;     // highest of the tracking allocator; resident size, highest
};

// One direction of a pair of ranks, over all steps, as the receiver saw it. Messages that overlap
// on the way count their time apart; those of one direction do not.
struct RehearsedLink {
  int from = 0, to = 0;
  int64_t messages = 0;
  Bytes bytes;
  Nanos time;
  double bandwidth() const;  // bytes/s
};

struct RehearsalFigures {
  std::vector<Nanos> step;     // first start to last end
  std::vector<Nanos> between;  // from one step's last end to the next one's first start
  std::vector<RehearsedRank> ranks;
  std::vector<RehearsedLink> links;
  // The simulated step: with the bandwidths of `links`, and with links that cost nothing.
  Nanos simulated, simulated_free_links;
};

// Fills the two simulated steps.
void simulate_beside(const Rehearsal& rehearsal, RehearsalFigures& figures);

// Several lines, each ended; one line without an end.
std::string to_text(const Rehearsal& rehearsal, const RehearsalFigures& figures);
std::string to_json(const Rehearsal& rehearsal, const RehearsalFigures& figures);

}  // namespace stagecraft
