// The split with the shortest simulated step under every device's memory cap: branch and bound over
// chains of down-sets.
//
// Best first over beginnings of chains, in rounds of fixed size, so that the result does not depend
// on the number of threads. docs/search.md has the bound and why it is sound. The arguments must
// outlive the object; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "partitioner/solver/split.h"
#include "partitioner/solver/stage_table.h"

namespace stagecraft {

struct SearchLimits {
  using Clock = std::chrono::steady_clock;

  // Stages tried; a step timed, a chain made exact count for several, by the time they take. The
  // result is the same everywhere.
  int64_t nodes = 3'000'000;
  // What is found then depends on the machine.
  std::optional<Clock::time_point> deadline{};
  // Longer steps are of no interest: none found in a complete search means that none is shorter or
  // as long.
  std::optional<Nanos> longest_step{};
  // With a split known, the search ends at a bound as high as this: another proves no more, and a
  // shorter step is not looked for.
  std::optional<Nanos> enough{};

  // For one of several searches: at most so many nodes, and half of the time that is left.
  SearchLimits part(int64_t most_nodes) const;
  bool is_over() const { return deadline && Clock::now() > *deadline; }
};

struct SearchResult {
  std::optional<Split> best;
  std::optional<Split> straight{};  // of `search_transfers`
  // No split over units that fits has a shorter step; equal to the best one's when that is proven.
  // With no split found and `is_complete`: none fits.
  int64_t bound = 0;
  bool is_complete = false;
  int64_t nodes = 0;
};

SearchResult search_step(const StageTable& table, const SplitTarget& target,
                         const SearchLimits& limits);
// Of values sent straight and of relayed ones (`target.relays` does not count): straight unless
// relaying is shorter; then `straight` is the best of the others, if any, which may be shorter once
// it is refined. Each has all of `limits.nodes`. `limits.enough` is for the relayed ones, for which
// the bound of the others is enough as well.
SearchResult search_transfers(const StageTable& table, const SplitTarget& target,
                              const SearchLimits& limits);

}  // namespace stagecraft
