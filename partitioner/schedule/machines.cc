#include "partitioner/schedule/machines.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace stagecraft {
namespace {

struct Operation {
  int message;
  bool is_send;
};

// Operations that one rank has posted together.
using Group = std::vector<Operation>;

struct Rank {
  std::vector<Group> groups;
  size_t at = 0;              // the current group
  std::vector<bool> is_done;  // by position in the current group
  bool finished() const { return at == groups.size(); }
};

class Run {
 public:
  Run(Machine machine, const Schedule& schedule) : machine_(machine), messages_(schedule.messages) {
    for (const auto& actions : schedule.ranks) {
      Rank& rank = ranks_.emplace_back();
      int group = 0;  // 0: the next message starts a group of its own
      for (const Action& action : actions) {
        const bool is_send = action.kind == ActionKind::kSend;
        if (!is_send && action.kind != ActionKind::kReceive) {
          group = 0;
          continue;
        }
        const bool joins = machine != Machine::kQueue && action.group != 0 && action.group == group;
        if (!joins) rank.groups.emplace_back();
        group = action.group;
        rank.groups.back().push_back({.message = action.message, .is_send = is_send});
      }
      if (!rank.finished()) rank.is_done.assign(rank.groups[0].size(), false);
    }
  }

  std::string run() {
    while (machine_ == Machine::kAtomicGroups ? step_atomic() : step_independent()) {
    }
    const auto stuck =
        std::find_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.finished(); });
    return stuck == ranks_.end() ? "" : describe(static_cast<int>(stuck - ranks_.begin()));
  }

 private:
  int peer_of(const Operation& op) const {
    const Message& message = messages_[op.message];
    return op.is_send ? message.dst_rank : message.src_rank;
  }

  // Position of `op`'s other half in the current group of its rank, or -1.
  int partner_of(const Operation& op) const {
    const Rank& peer = ranks_[peer_of(op)];
    if (peer.finished()) return -1;
    const Group& group = peer.groups[peer.at];
    for (size_t i = 0; i < group.size(); ++i) {
      if (group[i].message == op.message && group[i].is_send != op.is_send)
        return static_cast<int>(i);
    }
    return -1;
  }

  // An earlier operation of the same directed pair is still open: no tags, so order is all there
  // is.
  bool is_behind(int rank, size_t position) const {
    const Rank& r = ranks_[rank];
    const Group& group = r.groups[r.at];
    for (size_t i = 0; i < position; ++i) {
      if (!r.is_done[i] && group[i].is_send == group[position].is_send &&
          peer_of(group[i]) == peer_of(group[position])) {
        return true;
      }
    }
    return false;
  }

  void advance(int rank) {
    Rank& r = ranks_[rank];
    if (++r.at < r.groups.size()) r.is_done.assign(r.groups[r.at].size(), false);
  }

  bool step_independent() {
    bool moved = false;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      Rank& r = ranks_[rank];
      if (r.finished()) continue;
      const Group& group = r.groups[r.at];
      for (size_t i = 0; i < group.size(); ++i) {
        if (r.is_done[i] || is_behind(rank, i)) continue;
        const int partner = partner_of(group[i]);
        const int peer = peer_of(group[i]);
        if (partner < 0 || is_behind(peer, static_cast<size_t>(partner))) continue;
        r.is_done[i] = ranks_[peer].is_done[partner] = true;
        moved = true;
      }
    }
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      Rank& r = ranks_[rank];
      if (!r.finished() &&
          std::all_of(r.is_done.begin(), r.is_done.end(), [](bool d) { return d; })) {
        advance(rank);
      }
    }
    return moved;
  }

  // Completes the largest set of current groups that are each other's partners.
  bool step_atomic() {
    std::vector<bool> starts(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) starts[r] = !ranks_[r].finished();
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        if (!starts[r]) continue;
        for (const Operation& op : ranks_[r].groups[ranks_[r].at]) {
          if (starts[peer_of(op)] && partner_of(op) >= 0) continue;
          starts[r] = false;
          changed = true;
          break;
        }
      }
    }
    bool moved = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (!starts[r]) continue;
      advance(static_cast<int>(r));
      moved = true;
    }
    return moved;
  }

  static std::string text(const Operation& op) {
    return fmt::format("{}{}", op.is_send ? 'S' : 'R', op.message);
  }

  // The operation of the rank's current group that keeps it from going on.
  Operation blocker(int rank) const {
    const Rank& r = ranks_[rank];
    const Group& group = r.groups[r.at];
    for (size_t i = 0; i < group.size(); ++i) {
      if (!r.is_done[i] && partner_of(group[i]) < 0) return group[i];
    }
    // All partners are posted: a group waits for a group that cannot start, or order inside a pair
    // is crossed.
    for (size_t i = 0; i < group.size(); ++i) {
      if (!r.is_done[i] &&
          (machine_ != Machine::kAtomicGroups || blocks_atomically(peer_of(group[i])))) {
        return group[i];
      }
    }
    return group.front();
  }

  // The rank's group has an operation whose partner is not posted.
  bool blocks_atomically(int rank) const {
    const Group& group = ranks_[rank].groups[ranks_[rank].at];
    return std::any_of(group.begin(), group.end(),
                       [&](const Operation& op) { return partner_of(op) < 0; });
  }

  std::string describe(int rank) const {
    std::string line;
    std::vector<int> path;
    while (std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      if (ranks_[rank].finished()) return line + ", which has finished";
      const Operation op = blocker(rank);
      const int peer = peer_of(op);
      const std::string other = text({.message = op.message, .is_send = !op.is_send});
      line += line.empty() ? fmt::format("rank {}", rank) : ", which";
      line += fmt::format(" waits at {} for rank {} ({})", text(op), peer, other);
      rank = peer;
    }
    return line;
  }

  Machine machine_;
  const std::vector<Message>& messages_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::string run_machine(Machine machine, const Schedule& schedule) {
  return Run(machine, schedule).run();
}

}  // namespace stagecraft
