// A position in a list of memory pieces, handed to readv and writev a window at a time.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stagecraft {

class ByteCursor {
 public:
  ByteCursor() = default;
  // `Byte` is std::byte or const std::byte; the memory must stay where it is.
  template <class Byte>
  explicit ByteCursor(const std::vector<std::span<Byte>>& pieces) {
    for (const auto& piece : pieces) {
      if (piece.empty()) continue;
      pieces_.push_back(
          {.iov_base = const_cast<std::byte*>(piece.data()), .iov_len = piece.size()});
      total_ += piece.size();
    }
  }

  uint64_t total() const { return total_; }
  uint64_t position() const { return position_; }
  uint64_t remaining() const { return total_ - position_; }

  // Appends the next at most `limit` bytes to `window`, in at most `slots` pieces; returns how many
  // bytes.
  size_t window(std::vector<iovec>& window, size_t limit, size_t slots) const {
    size_t bytes = 0, offset = offset_;
    for (size_t i = piece_; i < pieces_.size() && bytes < limit && slots > 0; ++i, --slots) {
      const size_t n = std::min(pieces_[i].iov_len - offset, limit - bytes);
      window.push_back(
          {.iov_base = static_cast<std::byte*>(pieces_[i].iov_base) + offset, .iov_len = n});
      bytes += n;
      offset = 0;
    }
    return bytes;
  }

  void advance(size_t bytes) {
    position_ += bytes;
    offset_ += bytes;
    while (piece_ < pieces_.size() && offset_ >= pieces_[piece_].iov_len) {
      offset_ -= pieces_[piece_].iov_len;
      ++piece_;
    }
  }

 private:
  std::vector<iovec> pieces_;  // none empty
  size_t piece_ = 0, offset_ = 0;
  uint64_t total_ = 0, position_ = 0;
};

}  // namespace stagecraft
