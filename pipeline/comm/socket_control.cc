// The control channel: a star. Rank 0 collects what every rank says and sends all of it back to
// each.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "partitioner/base/strict_json.h"
#include "pipeline/comm/describe.h"
#include "pipeline/comm/polling.h"
#include "pipeline/comm/socket_parts.h"

namespace stagecraft {
namespace {

constexpr size_t kMaxName = 4096;
constexpr size_t kMaxChunk = 1 << 20;
constexpr size_t kMaxShown = 1000;  // of what a peer refuses with
// Rank 0 tells the others who is missing; they give it that much longer before they speak for
// themselves.
constexpr std::chrono::milliseconds kGrace{1000};

struct Frame {
  FrameKind kind = FrameKind::kRequest;
  uint64_t sequence = 0;
  std::string name;
  std::string payload;
};

std::string encode(const Frame& frame) {
  const std::string body = frame.name + frame.payload;
  const auto header = encode_frame({.kind = frame.kind,
                                    .sequence = frame.sequence,
                                    .name_bytes = static_cast<uint32_t>(frame.name.size()),
                                    .payload_bytes = frame.payload.size(),
                                    .checksum = XXH3_64bits(body.data(), body.size())});
  return std::string(reinterpret_cast<const char*>(header.data()), header.size()) + body;
}

// One frame each way over a connection, without blocking.
class Line {
 public:
  enum class State { kUnderWay, kDone, kClosed, kCorrupt };

  explicit Line(int fd, uint64_t max_payload) : fd_(fd), max_payload_(max_payload) {}

  int fd() const { return fd_; }
  void start_write(std::string bytes) {
    out_ = std::move(bytes);
    written_ = 0;
  }
  bool writing() const { return written_ < out_.size(); }

  State write_some() {
    while (writing()) {
      const ssize_t n =
          ::send(fd_, out_.data() + written_, out_.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) return errno == EAGAIN || errno == EINTR ? State::kUnderWay : State::kClosed;
      written_ += n;
    }
    return State::kDone;
  }

  // kDone: `frame` is filled and the line is ready for the next one.
  State read_some(Frame& frame) {
    for (;;) {
      const size_t wanted = header_
                                ? kFrameHeaderBytes + header_->name_bytes + header_->payload_bytes
                                : kFrameHeaderBytes;
      if (in_.size() < wanted) {
        const size_t had = in_.size();
        in_.resize(std::min(wanted, had + kMaxChunk));
        const ssize_t n = ::recv(fd_, in_.data() + had, in_.size() - had, MSG_DONTWAIT);
        in_.resize(had + std::max<ssize_t>(n, 0));
        if (n == 0) return State::kClosed;
        if (n < 0) return errno == EAGAIN || errno == EINTR ? State::kUnderWay : State::kClosed;
        continue;
      }
      if (!header_) {
        FrameHeaderBytes bytes;
        std::memcpy(bytes.data(), in_.data(), bytes.size());
        header_ = decode_frame(bytes);
        if (!header_ || header_->name_bytes > kMaxName || header_->payload_bytes > max_payload_) {
          return State::kCorrupt;
        }
        continue;
      }
      return take(frame);
    }
  }

 private:
  State take(Frame& frame) {
    const std::string_view body = std::string_view(in_).substr(kFrameHeaderBytes);
    if (XXH3_64bits(body.data(), body.size()) != header_->checksum) return State::kCorrupt;
    frame = {.kind = header_->kind,
             .sequence = header_->sequence,
             .name = std::string(body.substr(0, header_->name_bytes)),
             .payload = std::string(body.substr(header_->name_bytes))};
    header_.reset();
    in_.clear();
    return State::kDone;
  }

  int fd_;
  uint64_t max_payload_;
  std::string out_, in_;
  size_t written_ = 0;
  std::optional<FrameHeader> header_;
};

std::string join_payloads(const std::vector<std::string>& payloads) {
  std::string joined;
  for (const auto& payload : payloads) {
    const uint64_t size = payload.size();
    joined.append(reinterpret_cast<const char*>(&size), sizeof size);
    joined += payload;
  }
  return joined;
}

// Empty when it does not hold the payload of every rank and nothing else.
std::vector<std::string> split_payloads(std::string_view joined, int ranks) {
  std::vector<std::string> payloads;
  for (int rank = 0; rank < ranks; ++rank) {
    uint64_t size = 0;
    if (joined.size() < sizeof size) return {};
    std::memcpy(&size, joined.data(), sizeof size);
    joined.remove_prefix(sizeof size);
    if (joined.size() < size) return {};
    payloads.emplace_back(joined.substr(0, size));
    joined.remove_prefix(size);
  }
  return joined.empty() ? payloads : std::vector<std::string>();
}

// What a refusal may be about; another number out of a frame is a dead rank.
ExitCode failure_code(int number) {
  for (const ExitCode code : {ExitCode::kStall, ExitCode::kStartup, ExitCode::kInternal}) {
    if (number == static_cast<int>(code)) return code;
  }
  return ExitCode::kRankDied;
}

class SocketControl : public ControlChannel {
 public:
  SocketControl(const SocketWorldOptions& options, std::vector<Descriptor> connections,
                std::shared_ptr<SocketFate> fate)
      : rank_(options.rank),
        size_(options.size),
        deadline_(options.deadline),
        connections_(std::move(connections)),
        fate_(std::move(fate)) {
    const uint64_t one = kMaxControlPayload + sizeof(uint64_t);
    for (const auto& fd : connections_)
      lines_.emplace_back(fd.get(), rank_ == 0 ? one : one * size_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::vector<std::string> all_gather(std::string_view what, std::string_view payload) override {
    check(payload.size() <= kMaxControlPayload, "a control payload is at most 16 MiB");
    check(what.size() <= kMaxName, "a collective's name is at most 4096 bytes");
    fate_->raise_if_failed();
    ++sequence_;
    if (size_ == 1) return {std::string(payload)};
    return rank_ == 0 ? gather(what, payload) : take_part(what, payload);
  }

 private:
  // Rank 0.
  std::vector<std::string> gather(std::string_view what, std::string_view payload) {
    const Deadline deadline(deadline_);
    std::vector<std::optional<Frame>> requests(size_);
    requests[0] = Frame{.name = std::string(what), .payload = std::string(payload)};
    for (;;) {
      std::vector<int> missing;
      for (int peer = 1; peer < size_; ++peer) {
        if (!requests[peer]) missing.push_back(peer);
      }
      if (missing.empty()) break;
      if (deadline.passed()) {
        refuse(requests,
               {.code = ExitCode::kStall,
                .peer = missing.front(),
                .text = fmt::format("rank 0 waited {} in \"{}\" for rank {}",
                                    describe_duration(deadline_), what, fmt::join(missing, ", "))});
      }
      std::vector<pollfd> entries;
      for (const int peer : missing)
        entries.push_back({.fd = lines_[peer].fd(), .events = POLLIN, .revents = 0});
      poll_or_raise(entries, deadline);
      for (size_t i = 0; i < missing.size(); ++i) {
        if (entries[i].revents != 0) hear(missing[i], what, requests);
      }
    }
    std::vector<std::string> payloads;
    for (auto& request : requests) payloads.push_back(std::move(request->payload));
    answer({.kind = FrameKind::kReply,
            .sequence = sequence_,
            .name = std::string(what),
            .payload = join_payloads(payloads)},
           deadline);
    return payloads;
  }

  void hear(int peer, std::string_view what, std::vector<std::optional<Frame>>& requests) {
    Frame frame;
    switch (lines_[peer].read_some(frame)) {
      case Line::State::kUnderWay:
        return;
      case Line::State::kClosed:
        refuse(requests, lost(peer, what));
      case Line::State::kCorrupt:
        refuse(requests, corrupt(peer, what));
      case Line::State::kDone:
        break;
    }
    if (frame.kind != FrameKind::kRequest || frame.sequence != sequence_ || frame.name != what) {
      refuse(requests,
             {.peer = peer,
              .text = fmt::format("rank {} is at \"{}\" ({}) but rank 0 is at \"{}\" ({})", peer,
                                  printable(frame.name), frame.sequence, what, sequence_)});
    }
    requests[peer] = std::move(frame);
  }

  void answer(const Frame& reply, const Deadline& deadline) {
    const std::string bytes = encode(reply);
    for (int peer = 1; peer < size_; ++peer) lines_[peer].start_write(bytes);
    for (;;) {
      std::vector<pollfd> entries;
      for (int peer = 1; peer < size_; ++peer) {
        if (lines_[peer].write_some() == Line::State::kClosed) fail(lost(peer, reply.name));
        if (lines_[peer].writing())
          entries.push_back({.fd = lines_[peer].fd(), .events = POLLOUT, .revents = 0});
      }
      if (entries.empty()) return;
      if (deadline.passed()) {
        fail({.code = ExitCode::kStall,
              .text = fmt::format("the answer of \"{}\" was not taken", reply.name)});
      }
      poll_or_raise(entries, deadline);
    }
  }

  // Tells the ranks that have asked, as far as their sockets take it at once, and throws. The own
  // failure is kept first: the others leave when they are told, and that must not look like the
  // cause.
  [[noreturn]] void refuse(const std::vector<std::optional<Frame>>& requests, CommFailure failure) {
    fate_->fail(failure);
    const std::string bytes =
        encode({.kind = FrameKind::kRefusal,
                .sequence = sequence_,
                .name = fmt::format("{} {} {}", static_cast<int>(failure.code), failure.peer,
                                    failure.peer_lost ? 1 : 0),
                .payload = failure.text});
    for (int peer = 1; peer < size_; ++peer) {
      if (!requests[peer] && peer != failure.peer) continue;
      lines_[peer].start_write(bytes);
      lines_[peer].write_some();
    }
    fail(std::move(failure));
  }

  // The other ranks.
  std::vector<std::string> take_part(std::string_view what, std::string_view payload) {
    const Deadline deadline(deadline_ + kGrace);
    Line& line = lines_[0];
    line.start_write(encode(
        {.sequence = sequence_, .name = std::string(what), .payload = std::string(payload)}));
    for (;;) {
      if (line.write_some() == Line::State::kClosed) fail(lost(0, what));
      Frame reply;
      switch (line.read_some(reply)) {
        case Line::State::kDone:
          return understand(reply, what);
        case Line::State::kClosed:
          fail(lost(0, what));
        case Line::State::kCorrupt:
          fail(corrupt(0, what));
        case Line::State::kUnderWay:
          break;
      }
      if (deadline.passed()) {
        fail({.code = ExitCode::kStall,
              .peer = 0,
              .text = fmt::format("rank {} waited {} in \"{}\" for rank 0", rank_,
                                  describe_duration(deadline_ + kGrace), what)});
      }
      const short events = static_cast<short>(line.writing() ? POLLIN | POLLOUT : POLLIN);
      std::vector<pollfd> entries{{.fd = line.fd(), .events = events, .revents = 0}};
      poll_or_raise(entries, deadline);
    }
  }

  std::vector<std::string> understand(const Frame& reply, std::string_view what) {
    if (reply.kind == FrameKind::kRefusal) {
      int code = static_cast<int>(ExitCode::kRankDied), peer = -1, peer_lost = 0;
      std::sscanf(reply.name.c_str(), "%d %d %d", &code, &peer, &peer_lost);
      const CommFailure refusal{.code = failure_code(code),
                                .peer = peer,
                                .peer_lost = peer_lost != 0,
                                .text = printable(reply.payload, kMaxShown)};
      // Rank 0 leaves right after it has refused: its closed connection may have been the first
      // failure, and says less.
      fate_->fail(refusal);
      refusal.raise(rank_);
    }
    if (reply.kind != FrameKind::kReply || reply.sequence != sequence_ || reply.name != what)
      fail(corrupt(0, what));
    std::vector<std::string> payloads = split_payloads(reply.payload, size_);
    if (payloads.empty()) fail(corrupt(0, what));
    return payloads;
  }

  // Waits for `entries` or the end of this rank's world. What has come on the lines is read before
  // a failure counts: in the last collective of a run a peer may be gone when its answer is here.
  void poll_or_raise(std::vector<pollfd>& entries, const Deadline& deadline) {
    entries.push_back({.fd = fate_->event(), .events = POLLIN, .revents = 0});
    ::poll(entries.data(), entries.size(), deadline.remaining_ms());
    const bool failed = entries.back().revents != 0;
    entries.pop_back();
    for (const auto& entry : entries) {
      if (entry.revents != 0) return;
    }
    if (failed) fate_->raise_if_failed();
  }

  CommFailure lost(int peer, std::string_view what) const {
    return {.peer = peer,
            .peer_lost = true,
            .text = fmt::format(
                "rank {} closed its control connection to rank {} before the end of \"{}\"", peer,
                rank_, what)};
  }

  CommFailure corrupt(int peer, std::string_view what) const {
    return {.peer = peer,
            .text = fmt::format(
                "rank {} sent rank {} a broken control frame in \"{}\": the bytes changed on the "
                "way, or the programs differ",
                peer, rank_, what)};
  }

  [[noreturn]] void fail(CommFailure failure) {
    fate_->fail(std::move(failure));
    fate_->raise_if_failed();
    throw InternalError("a failure was not kept");
  }

  const int rank_;
  const int size_;
  const std::chrono::milliseconds deadline_;
  std::vector<Descriptor> connections_;
  std::vector<Line> lines_;  // as connections_
  std::shared_ptr<SocketFate> fate_;
  uint64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<ControlChannel> make_socket_control(const SocketWorldOptions& options,
                                                    std::vector<Descriptor> connections,
                                                    std::shared_ptr<SocketFate> fate) {
  return std::make_unique<SocketControl>(options, std::move(connections), std::move(fate));
}

}  // namespace stagecraft
