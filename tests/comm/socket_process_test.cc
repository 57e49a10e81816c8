// Ranks as processes that are killed in the middle of transfers.
#include <gtest/gtest.h>

#include "tests/comm/socket_helpers.h"
#include "tests/support/sanitized.h"

namespace stagecraft {
namespace {

using namespace std::chrono_literals;

// A pipe for one line from a child to the test.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void write(const std::string& line) const {
    EXPECT_EQ(::write(ends_[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  std::string read() const {
    char buffer[512];
    const ssize_t n = ::read(ends_[0], buffer, sizeof buffer);
    return std::string(buffer, std::max<ssize_t>(n, 0));
  }

 private:
  int ends_[2];
};

TEST(SocketMultiProcess, FourProcessesPassLargeMessagesInARing) {
  TestFolder folder;
  constexpr int kRanks = 4;
  constexpr size_t kBytes = 4 << 20;
  std::vector<ChildProcess> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.emplace_back([&, rank] {
      auto options = test_options(folder, kRanks);
      options.rank = rank;
      SocketWorld world = connect_socket_world(options);
      const int next = (rank + 1) % kRanks, previous = (rank + kRanks - 1) % kRanks;
      for (int step = 0; step < 3; ++step) {
        const auto sent = pattern_bytes(kBytes, rank);
        std::vector<std::byte> got(kBytes);
        const MessageTag tag{.step = step, .message = 0};
        const auto send = world.communicator->send(next, tag, {std::span(sent)}, nullptr);
        world.communicator->receive(previous, tag, {std::span(got)}, nullptr)->wait();
        send->wait();
        if (got != pattern_bytes(kBytes, previous)) return 1;
      }
      world.control->all_gather("goodbye", "");
      return 0;
    });
  }
  for (auto& child : children) EXPECT_EQ(child.join(), 0);
  EXPECT_TRUE(folder.empty());
}

// The small message in front shows that the sender is at work on the large one.
TEST(SocketMultiProcess, APeerKilledInTheMiddleOfALargeMessageIsSeenAtOnce) {
  constexpr MessageTag kFirst{.step = 3, .message = 6};
  constexpr size_t kBytes = 64 << 20;
  for (int trial = 0; trial < 3; ++trial) {
    TestFolder folder;
    auto options = test_options(folder, 2);
    ChildProcess sender([&] {
      SocketWorld world = join_as(options, 1);
      std::vector<std::byte> large(kBytes);
      world.communicator->send(0, kFirst, {}, nullptr);
      world.communicator->send(0, kTag, {std::span<const std::byte>(large)}, nullptr)->wait();
      ::pause();
      return 0;
    });
    SocketWorld world = connect_socket_world(options);
    std::vector<std::byte> got(kBytes);
    world.communicator->receive(1, kFirst, {}, nullptr)->wait();
    const auto operation = world.communicator->receive(1, kTag, {std::span(got)}, nullptr);
    sender.kill(SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    try {
      operation->wait();
      FAIL();
    } catch (const PeerLostError& error) {
      EXPECT_EQ(error.peer(), 1);
      EXPECT_STREQ(error.what(), "rank 1 closed the connection to rank 0: it died or was stopped");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, 2s * kSlower);
  }
}

TEST(SocketMultiProcess, AKilledPeerIsSeenByASenderInTheMiddle) {
  TestFolder folder;
  auto options = test_options(folder, 2);
  Pipe ready;
  ChildProcess receiver([&] {
    SocketWorld world = join_as(options, 1);
    ready.write("r");
    ::pause();
    return 0;
  });
  SocketWorld world = connect_socket_world(options);
  std::vector<std::byte> large(64 << 20);
  const auto operation =
      world.communicator->send(1, kTag, {std::span<const std::byte>(large)}, nullptr);
  ready.read();
  receiver.kill(SIGKILL);
  EXPECT_THROW(operation->wait(), PeerLostError);
}

TEST(SocketMultiProcess, ADeadRankEndsTransfersBetweenOthersAndCollectives) {
  TestFolder folder;
  Pipe ready;
  const auto options = test_options(folder, 4);
  std::vector<ChildProcess> children;
  for (int rank = 0; rank < 4; ++rank) {
    children.emplace_back([&, rank]() -> int {
      SocketWorld world = join_as(options, rank);
      ready.write("r");
      try {
        if (rank == 3) ::pause();
        if (rank == 0) world.control->all_gather("vote", "");
        if (rank == 2) world.control->all_gather("vote", "");
        std::vector<std::byte> got(8);
        world.communicator->receive(2, kTag, {std::span(got)}, nullptr)->wait();
      } catch (const PeerLostError& error) {
        return 100 + error.peer();
      }
      return 1;
    });
  }
  for (int started = 0; started < 4;) started += static_cast<int>(ready.read().size());
  const auto start = std::chrono::steady_clock::now();
  children[3].kill(SIGKILL);
  for (int rank = 0; rank < 3; ++rank) EXPECT_GE(children[rank].join(), 100) << rank;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s * kSlower);
}

TEST(SocketMultiProcess, ADeadRankIsFoundByARankThatOnlyComputes) {
  TestFolder folder;
  auto options = test_options(folder, 2);
  ChildProcess peer([&] {
    SocketWorld world = join_as(options, 1);
    ::pause();
    return 0;
  });
  SocketWorld world = connect_socket_world(options);
  peer.kill(SIGKILL);
  peer.join();
  // No transfer is pending; the next call tells, though the death came between calls.
  EXPECT_THROW(
      {
        for (;;) world.communicator->send(1, kTag, {}, nullptr);
      },
      PeerLostError);
  EXPECT_THROW(world.control->all_gather("vote", ""), PeerLostError);
}

}  // namespace
}  // namespace stagecraft
