// A connection whose other end says what a fuzzer wants and closes.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <xxhash.h>

#include <cstring>
#include <utility>
#include <vector>

#include "pipeline/comm/socket_parts.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {

// Less than a socket holds, so that writing never blocks.
inline constexpr size_t kMostBytes = 32 << 10;

// Numbers from the front of an input; zeros behind its end.
class Script {
 public:
  explicit Script(std::string_view text) : text_(text) {}
  bool empty() const { return text_.empty(); }
  template <class Value>
  Value take() {
    Value value{};
    std::memcpy(&value, text_.data(), std::min(sizeof value, text_.size()));
    skip(sizeof value);
    return value;
  }
  std::string_view take_bytes(size_t count) {
    const std::string_view bytes = text_.substr(0, count);
    skip(count);
    return bytes;
  }
  std::string_view rest() const { return text_; }

 private:
  void skip(size_t count) { text_.remove_prefix(std::min(count, text_.size())); }
  std::string_view text_;
};

inline std::string_view bytes_of(const auto& array) {
  return {reinterpret_cast<const char*>(array.data()), array.size()};
}

inline uint64_t checksum_of(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

// The end of a connection that is read, with `said` waiting in it.
inline Descriptor listen_to(std::string_view said) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
          "a pair of sockets");
  Descriptor near(ends[0]), far(ends[1]);
  require(::send(far.get(), said.data(), said.size(), MSG_NOSIGNAL) ==
              static_cast<ssize_t>(said.size()),
          "a socket takes what is said");
  return near;
}

}  // namespace stagecraft::fuzz
