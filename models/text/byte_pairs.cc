#include "models/text/byte_pairs.h"

#include <functional>
#include <queue>

namespace stagecraft {
namespace {

constexpr std::string_view kEndOfWord = "</w>";

bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

}  // namespace

std::string byte_character(uint8_t byte) {
  // Bytes that cannot be seen stand behind Latin-1, in their order.
  int code = byte;
  if (!is_printable(byte)) {
    code = 256;
    for (int other = 0; other < byte; ++other) code += is_printable(other) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

BytePairs::BytePairs(const Vocabulary& vocabulary, int64_t unknown) {
  const auto id_or_unknown = [&](const std::string& token) {
    const auto found = vocabulary.ids.find(token);
    return found == vocabulary.ids.end() ? unknown : found->second;
  };
  for (size_t byte = 0; byte < inner_.size(); ++byte) {
    std::string character = byte_character(static_cast<uint8_t>(byte));
    inner_[byte] = id_or_unknown(character);
    last_[byte] = id_or_unknown(character.append(kEndOfWord));
  }
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto& [left, right] = vocabulary.merges[rank];
    const auto fail = [&](const std::string& what) { throw BadMerge(rank, what); };
    const auto l = vocabulary.ids.find(left), r = vocabulary.ids.find(right);
    const auto whole = vocabulary.ids.find(left + right);
    if (l == vocabulary.ids.end() || r == vocabulary.ids.end() || whole == vocabulary.ids.end()) {
      fail("names a token that the vocabulary does not hold");
    }
    const Merge merge{.rank = static_cast<int64_t>(rank), .id = whole->second};
    if (!merges_.emplace(std::pair(l->second, r->second), merge).second) fail("occurs twice");
  }
}

const BytePairs::Merge* BytePairs::find(int64_t left, int64_t right) const {
  const auto found = merges_.find({left, right});
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairs::append_word(std::string_view word, std::vector<int64_t>& ids) const {
  struct Symbol {
    int64_t id;
    size_t before, next;  // neighbours that are still there
    bool gone = false;
  };
  const size_t n = word.size();
  std::vector<Symbol> symbols;
  symbols.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const auto byte = static_cast<uint8_t>(word[i]);
    // The first one's `before` is never asked for.
    symbols.push_back(
        {.id = i + 1 < n ? inner_[byte] : last_[byte], .before = i - 1, .next = i + 1});
  }
  struct Candidate {
    int64_t rank;
    size_t at;
    int64_t left, right;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](size_t at) {
    const size_t next = symbols[at].next;
    if (next >= n) return;
    const Merge* merge = find(symbols[at].id, symbols[next].id);
    if (merge == nullptr) return;
    queue.push({.rank = merge->rank, .at = at, .left = symbols[at].id, .right = symbols[next].id});
  };
  for (size_t i = 0; i < n; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.gone || left.next >= n) continue;
    Symbol& right = symbols[left.next];
    if (left.id != best.left || right.id != best.right) continue;  // merged otherwise meanwhile
    left.id = find(best.left, best.right)->id;
    right.gone = true;
    left.next = right.next;
    if (left.next < n) symbols[left.next].before = best.at;
    if (best.at > 0) offer(left.before);
    offer(best.at);
  }
  for (size_t i = 0; i < n; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace stagecraft
