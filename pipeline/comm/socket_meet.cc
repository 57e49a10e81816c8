// Start-up: every rank listens, connects to all ranks below it and is connected to by all above it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "pipeline/comm/address.h"
#include "pipeline/comm/describe.h"
#include "pipeline/comm/polling.h"
#include "pipeline/comm/socket_parts.h"

namespace stagecraft {
namespace {

constexpr size_t kMaxStrangers = 64;  // connections that have not said hello yet
constexpr int kRetryMs = 5;

// Reads or writes until `bytes` is over, the deadline passes or the connection closes. A hello fits
// into any socket buffer, so partial writes do not occur between ranks that are alive.
bool read_exactly(int fd, std::span<std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (n > 0) {
      bytes = bytes.subspan(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || deadline.passed()) {
      return false;
    } else {
      pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
      ::poll(&entry, 1, deadline.remaining_ms());
    }
  }
  return true;
}

bool write_hello(int fd, const HelloBytes& bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

// The socket's file, there while the rank listens.
class Listener {
 public:
  Listener(const std::string& folder, int rank)
      : address_(rank_address(folder, rank)), fd_(listen_at(address_, rank)) {}
  ~Listener() { ::unlink(address_.path.c_str()); }
  Listener(const Listener&) = delete;
  const Descriptor& fd() const { return fd_; }

 private:
  RankAddress address_;
  Descriptor fd_;
};

struct Stranger {
  Descriptor fd;
  HelloBytes bytes{};
  size_t got = 0;
};

class Meeting {
 public:
  explicit Meeting(const SocketWorldOptions& options)
      : options_(options),
        deadline_(options.startup_deadline),
        listener_(options.folder, options.rank) {
    result_.data.resize(options.size);
    result_.control.resize(options.rank == 0 ? options.size : 1);
  }

  Connections run() {
    for (int peer = 0; peer < options_.rank; ++peer)
      result_.data[peer] = reach(peer, Purpose::kData);
    if (options_.rank > 0) result_.control[0] = reach(0, Purpose::kControl);
    while (!missing().empty()) receive_visitors();
    return std::move(result_);
  }

 private:
  Hello own_hello(Purpose purpose) const {
    return {.purpose = purpose,
            .rank = options_.rank,
            .size = options_.size,
            .cookie = options_.cookie};
  }

  // Connects, says hello and waits for the answer. Who answers wrongly is asked again until the
  // deadline.
  Descriptor reach(int peer, Purpose purpose) {
    const RankAddress address = rank_address(options_.folder, peer);
    while (!deadline_.passed()) {
      Descriptor fd = try_connect(address, peer);
      HelloBytes answer;
      if (fd && write_hello(fd.get(), encode_hello(own_hello(purpose))) &&
          read_exactly(fd.get(), answer, deadline_)) {
        const auto hello = decode_hello(answer, options_.cookie);
        if (hello && hello->rank == peer && hello->size == options_.size &&
            hello->purpose == purpose)
          return fd;
      }
      ::poll(nullptr, 0, std::min(kRetryMs, deadline_.remaining_ms()));
    }
    throw CommError(
        ExitCode::kStartup, peer,
        fmt::format("rank {} did not reach rank {} at {} within {}: see why rank {} did not start",
                    options_.rank, peer, address.path, describe_duration(options_.startup_deadline),
                    peer));
  }

  // Ranks above this one of which a connection is missing.
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int peer = options_.rank + 1; peer < options_.size; ++peer) {
      if (!result_.data[peer] || (options_.rank == 0 && !result_.control[peer]))
        ranks.push_back(peer);
    }
    return ranks;
  }

  void receive_visitors() {
    if (deadline_.passed()) {
      const auto ranks = missing();
      throw CommError(
          ExitCode::kStartup, ranks.front(),
          fmt::format("rank {} waited {} for rank {} to connect: see why it did not start",
                      options_.rank, describe_duration(options_.startup_deadline),
                      fmt::join(ranks, ", ")));
    }
    std::vector<pollfd> entries{{.fd = listener_.fd().get(), .events = POLLIN, .revents = 0}};
    for (const auto& stranger : strangers_) {
      entries.push_back({.fd = stranger.fd.get(), .events = POLLIN, .revents = 0});
    }
    ::poll(entries.data(), entries.size(), deadline_.remaining_ms());
    for (auto& stranger : strangers_) hear(stranger);
    std::erase_if(strangers_, [](const Stranger& stranger) { return !stranger.fd; });
    while (Descriptor fd = try_accept(listener_.fd())) {
      if (strangers_.size() == kMaxStrangers) strangers_.erase(strangers_.begin());
      strangers_.push_back({.fd = std::move(fd)});
      hear(strangers_.back());
    }
    std::erase_if(strangers_, [](const Stranger& stranger) { return !stranger.fd; });
  }

  // Reads what a stranger says; a rank of this world gets its place, anyone else is dropped without
  // an answer.
  void hear(Stranger& stranger) {
    const ssize_t n = ::recv(stranger.fd.get(), stranger.bytes.data() + stranger.got,
                             kHelloBytes - stranger.got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return stranger.fd.reset();
    stranger.got += n;
    if (stranger.got < kHelloBytes) return;
    Descriptor fd = std::move(stranger.fd);
    const auto hello = decode_hello(stranger.bytes, options_.cookie);
    if (!hello || hello->size != options_.size || hello->rank <= options_.rank ||
        hello->rank >= options_.size)
      return;
    if (hello->purpose == Purpose::kControl && options_.rank != 0) return;
    auto& places = hello->purpose == Purpose::kData ? result_.data : result_.control;
    if (places[hello->rank] || !write_hello(fd.get(), encode_hello(own_hello(hello->purpose))))
      return;
    places[hello->rank] = std::move(fd);
  }

  const SocketWorldOptions& options_;
  const Deadline deadline_;
  Listener listener_;
  std::vector<Stranger> strangers_;
  Connections result_;
};

}  // namespace

Connections meet(const SocketWorldOptions& options) {
  if (options.size == 1)
    return {.data = std::vector<Descriptor>(1), .control = std::vector<Descriptor>(1)};
  return Meeting(options).run();
}

}  // namespace stagecraft
