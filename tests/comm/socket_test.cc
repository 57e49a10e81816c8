#include "pipeline/comm/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <latch>

#include "tests/comm/socket_helpers.h"

namespace stagecraft {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void goodbye(SocketWorld& world) { world.control->all_gather("goodbye", ""); }

void expect_all_fine(const std::vector<RankOutcome>& outcomes) {
  for (const auto& outcome : outcomes) EXPECT_FALSE(outcome.threw) << outcome.text;
}

TEST(Socket, DeliversMessagesOfManySizes) {
  TestFolder folder;
  const std::vector<size_t> sizes = {0, 1, 7, 8, 9, 4096, 65'537, 262'144, 262'145, 3'000'001};
  std::vector<std::vector<std::byte>> sent, got;
  for (const size_t size : sizes) {
    sent.push_back(pattern_bytes(size, size));
    got.emplace_back(size);
  }
  expect_all_fine(run_socket_ranks(test_options(folder, 2), [&](int rank, SocketWorld& world) {
    std::vector<std::shared_ptr<Operation>> operations;
    for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
      const MessageTag tag{.step = -1, .message = i};
      operations.push_back(rank == 0
                               ? world.communicator->send(1, tag, whole(sent[i]), nullptr)
                               : world.communicator->receive(0, tag, {std::span(got[i])}, nullptr));
    }
    for (auto& operation : operations) operation->wait();
    goodbye(world);
  }));
  EXPECT_EQ(got, sent);
  EXPECT_TRUE(folder.empty()) << "a socket's file was left";
}

TEST(Socket, DeliversPiecesSplitDifferently) {
  TestFolder folder;
  const auto sent = pattern_bytes(1'000'000, 1);
  std::vector<std::byte> got(sent.size());
  expect_all_fine(run_socket_ranks(test_options(folder, 2), [&](int rank, SocketWorld& world) {
    if (rank == 0) {
      std::vector<std::span<const std::byte>> pieces;
      for (size_t at = 0; at < sent.size(); at += 5000)
        pieces.push_back(std::span(sent).subspan(at, 5000));
      world.communicator->send(1, kTag, pieces, nullptr)->wait();
      EXPECT_EQ(world.communicator->bytes_sent(), 1'000'000);
    } else {
      std::vector<std::span<std::byte>> pieces = {std::span(got).first(0), std::span(got).first(1)};
      for (size_t at = 1; at < got.size(); at += 33'333) {
        pieces.push_back(std::span(got).subspan(at, std::min<size_t>(33'333, got.size() - at)));
      }
      world.communicator->receive(0, kTag, pieces, nullptr)->wait();
    }
    goodbye(world);
  }));
  EXPECT_EQ(got, sent);
}

TEST(Socket, EveryPairTalksBothWaysAtOnce) {
  TestFolder folder;
  constexpr int kRanks = 4;
  constexpr size_t kBytes = 500'000;
  expect_all_fine(run_socket_ranks(test_options(folder, kRanks), [&](int rank, SocketWorld& world) {
    std::vector<std::vector<std::byte>> out(kRanks), in(kRanks);
    std::vector<std::shared_ptr<Operation>> operations;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      out[peer] = pattern_bytes(kBytes, rank * kRanks + peer);
      in[peer].resize(kBytes);
      operations.push_back(world.communicator->receive(peer, kTag, {std::span(in[peer])}, nullptr));
      operations.push_back(world.communicator->send(peer, kTag, whole(out[peer]), nullptr));
    }
    for (auto& operation : operations) operation->wait();
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(in[peer], pattern_bytes(kBytes, peer * kRanks + rank));
    }
    goodbye(world);
  }));
}

TEST(Socket, ALargeSendWaitsForItsReceive) {
  TestFolder folder;
  auto options = test_options(folder, 2);
  options.deadline = 100ms;
  std::vector<std::byte> large(32 << 20);
  const auto outcomes = run_socket_ranks(options, [&](int rank, SocketWorld& world) {
    if (rank == 0) world.communicator->send(1, kTag, whole(large), nullptr)->wait();
    if (rank == 1) world.communicator->receive(0, {.step = 3, .message = 6}, {}, nullptr);
    if (rank == 1) world.control->all_gather("never", "");
  });
  EXPECT_TRUE(outcomes[0].threw);
}

TEST(Socket, ADeadlineNamesWhatItWaitedFor) {
  TestFolder folder;
  auto options = test_options(folder, 2);
  options.deadline = 50ms;
  std::vector<std::byte> got(8);
  std::latch failed(1);
  const auto outcomes = run_socket_ranks(options, [&](int rank, SocketWorld& world) {
    if (rank == 0) return failed.wait();
    const auto operation = world.communicator->receive(0, kTag, {std::span(got)}, nullptr);
    try {
      operation->wait();
    } catch (const CommError&) {
      failed.count_down();
      throw;
    }
  });
  EXPECT_EQ(outcomes[1].code, ExitCode::kStall);
  EXPECT_EQ(outcomes[1].text, "rank 1 waited 50 ms for message 7 of step 3 (8 bytes) from rank 0");
}

TEST(Socket, ADifferentOrderFailsNamingBothMessages) {
  TestFolder folder;
  std::vector<std::byte> memory(8);
  const auto outcomes =
      run_socket_ranks(test_options(folder, 2), [&](int rank, SocketWorld& world) {
        if (rank == 0) {
          world.communicator->send(1, {.step = 3, .message = 7}, whole(memory), nullptr);
          goodbye(world);
        } else {
          world.communicator->receive(0, {.step = 3, .message = 9}, {std::span(memory)}, nullptr)
              ->wait();
        }
      });
  EXPECT_EQ(outcomes[1].code, ExitCode::kRankDied);
  EXPECT_THAT(outcomes[1].text,
              AllOf(HasSubstr("rank 0 sent message 7 of step 3 (8 bytes) to rank 1"),
                    HasSubstr("expected message 9 of step 3 (8 bytes)")));
  EXPECT_TRUE(outcomes[0].threw);
}

TEST(Socket, AMessageThatCameBeforeItsReceiveIsCompared) {
  TestFolder folder;
  std::vector<std::byte> memory(8);
  const auto outcomes =
      run_socket_ranks(test_options(folder, 2), [&](int rank, SocketWorld& world) {
        if (rank == 0) world.communicator->send(1, kTag, whole(memory), nullptr)->wait();
        world.control->all_gather("sent", "");
        if (rank == 1)
          world.communicator->receive(0, kTag, {std::span(memory).first(4)}, nullptr)->wait();
        goodbye(world);
      });
  EXPECT_THAT(outcomes[1].text, AllOf(HasSubstr("(8 bytes)"), HasSubstr("(4 bytes)")));
}

TEST(Socket, AbortEndsEveryRank) {
  TestFolder folder;
  std::latch posted(2), told(2);
  const auto outcomes =
      run_socket_ranks(test_options(folder, 3), [&](int rank, SocketWorld& world) {
        std::vector<std::byte> got(8);
        if (rank == 2) {
          posted.wait();
          world.communicator->abort("no memory left");
          told.wait();  // abort alone tells the others, not the end of this rank
          goodbye(world);
        } else {
          const auto operation =
              world.communicator->receive(1 - rank, kTag, {std::span(got)}, nullptr);
          posted.count_down();
          EXPECT_THROW(operation->wait(), PeerLostError);
          told.count_down();
          operation->wait();
        }
      });
  EXPECT_EQ(outcomes[2].text, "rank 2 aborted: no memory left");
  for (int rank : {0, 1}) EXPECT_THAT(outcomes[rank].text, HasSubstr("closed the connection"));
}

TEST(Socket, AbortFromAnotherThreadWakesTheWaiter) {
  TestFolder folder;
  const auto outcomes =
      run_socket_ranks(test_options(folder, 2), [&](int rank, SocketWorld& world) {
        std::vector<std::byte> got(8);
        const auto operation =
            world.communicator->receive(1 - rank, kTag, {std::span(got)}, nullptr);
        std::thread other;
        if (rank == 0) other = std::thread([&] { world.communicator->abort("signal"); });
        try {
          operation->wait();
        } catch (const CommError&) {
          if (other.joinable()) other.join();
          throw;
        }
      });
  EXPECT_TRUE(outcomes[0].threw && outcomes[1].threw);
  EXPECT_EQ(outcomes[0].text, "rank 0 aborted: signal");
}

TEST(Socket, ARankThatLeftOrderlyFailsOnlyThoseWhoNeedIt) {
  TestFolder folder;
  std::latch gone(1), received(1);
  const auto outcomes =
      run_socket_ranks(test_options(folder, 3), [&](int rank, SocketWorld& world) {
        if (rank == 2) {
          world = {};
          return gone.count_down();
        }
        gone.wait();
        std::vector<std::byte> memory(1000);
        const auto operation =
            rank == 0 ? world.communicator->send(1, kTag, whole(memory), nullptr)
                      : world.communicator->receive(0, kTag, {std::span(memory)}, nullptr);
        operation->wait();
        if (rank == 0) return received.wait();
        received.count_down();
        world.communicator->receive(2, kTag, {}, nullptr)->wait();
      });
  EXPECT_FALSE(outcomes[0].threw) << outcomes[0].text;
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 2"));
}

TEST(Socket, AWorldOfOneNeedsNoSocket) {
  SocketWorld world = connect_socket_world({.folder = "/nonexistent"});
  EXPECT_THAT(world.control->all_gather("goodbye", "x"), ElementsAre("x"));
}

TEST(Socket, MissingRanksAreNamedAtTheStartUpDeadline) {
  TestFolder folder;
  auto options = test_options(folder, 4);
  options.startup_deadline = 100ms;
  const auto outcomes = run_ranks(2, [&](int i) { join_as(options, i == 0 ? 0 : 2); });
  EXPECT_EQ(outcomes[0].code, ExitCode::kStartup);
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 0 waited 100 ms for rank 1, "));
  EXPECT_EQ(outcomes[1].code, ExitCode::kStartup);
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 2 did not reach rank 1"));
  EXPECT_TRUE(folder.empty());
}

TEST(Socket, APathThatIsTooLongIsRefusedWithItsLength) {
  SocketWorldOptions options{.folder = "/tmp/" + std::string(100, 'x'), .size = 2};
  try {
    connect_socket_world(options);
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), ExitCode::kStartup);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("117 bytes"), HasSubstr("107")));
  }
}

TEST(Socket, StrangersDoNotDisturbTheStart) {
  TestFolder folder;
  auto options = test_options(folder, 2);
  std::vector<Descriptor> strangers;
  std::thread rank0(
      [options] { connect_socket_world(options).control->all_gather("goodbye", ""); });
  const auto knock = [&](const std::vector<std::byte>& words) {
    Descriptor fd;
    while (!fd) fd = try_connect(rank_address(folder.path(), 0), 0);
    ::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL);
    strangers.push_back(std::move(fd));
  };
  const auto as_bytes = [](const HelloBytes& hello) {
    return std::vector<std::byte>(hello.begin(), hello.end());
  };
  knock({});                      // says nothing
  knock(pattern_bytes(1000, 1));  // garbage
  knock(pattern_bytes(5, 1));     // too little
  Hello forged{.purpose = Purpose::kData, .rank = 1, .size = 2, .cookie = {}};
  knock(as_bytes(encode_hello(forged)));  // wrong cookie
  forged.cookie = options.cookie;
  forged.rank = 7;
  knock(as_bytes(encode_hello(forged)));  // no such rank
  options.rank = 1;
  connect_socket_world(options).control->all_gather("goodbye", "");
  rank0.join();
  EXPECT_TRUE(folder.empty());
}

TEST(Socket, AWrongCookieIsNeverLetIn) {
  TestFolder folder;
  auto options = test_options(folder, 2);
  options.startup_deadline = 100ms;
  const auto outcomes = run_ranks(2, [&](int rank) {
    auto own = options;
    own.cookie[15] ^= static_cast<std::byte>(rank);
    join_as(own, rank);
  });
  EXPECT_EQ(outcomes[0].code, ExitCode::kStartup);
  EXPECT_EQ(outcomes[1].code, ExitCode::kStartup);
}

TEST(Socket, NoTwoCookiesAreEqual) { EXPECT_NE(make_cookie(), make_cookie()); }

// Bytes go from rank 1 to rank 0 all the time that rank 1 waits for its message.
TEST(Socket, AWaitLongerThanTheDeadlineIsNoStallWhileBytesMove) {
  using Clock = std::chrono::steady_clock;
  TestFolder folder;
  auto options = test_options(folder, 2);
  options.deadline = 400ms;
  expect_all_fine(run_socket_ranks(options, [&](int rank, SocketWorld& world) {
    std::vector<std::byte> last(1), awaited(1);
    if (rank == 0) {
      for (int i = 0; last[0] == std::byte{0}; ++i) {
        world.communicator->receive(1, {.step = 0, .message = i}, {std::span(last)}, nullptr)
            ->wait();
      }
      world.communicator->send(1, kTag, whole(awaited), nullptr)->wait();
    } else {
      const auto operation = world.communicator->receive(0, kTag, {std::span(awaited)}, nullptr);
      const auto end = Clock::now() + 3 * options.deadline / 2;
      auto waiting = std::async(std::launch::async, [&] { operation->wait(); });
      for (int i = 0; last[0] == std::byte{0}; ++i) {
        if (Clock::now() > end) last[0] = std::byte{1};
        world.communicator->send(0, {.step = 0, .message = i}, whole(last), nullptr)->wait();
      }
      waiting.get();
    }
    goodbye(world);
  }));
}

TEST(SocketControl, GathersByRankManyTimes) {
  TestFolder folder;
  std::vector<std::vector<std::string>> got(3);
  expect_all_fine(run_socket_ranks(test_options(folder, 3), [&](int rank, SocketWorld& world) {
    for (int round = 0; round < 100; ++round) {
      got[rank] = world.control->all_gather("round " + std::to_string(round),
                                            std::string(rank, 'x') + std::to_string(round));
    }
  }));
  for (const auto& payloads : got) EXPECT_THAT(payloads, ElementsAre("99", "x99", "xx99"));
}

TEST(SocketControl, GathersLargePayloads) {
  TestFolder folder;
  const std::string large(kMaxControlPayload, 'L');
  expect_all_fine(run_socket_ranks(test_options(folder, 2), [&](int rank, SocketWorld& world) {
    const auto got = world.control->all_gather("large", rank == 1 ? large : "");
    EXPECT_TRUE(got[1] == large);
    EXPECT_EQ(got[0], "");
  }));
}

// Many rounds: rank 0 leaves right after its refusal, which then races with its closed connections.
TEST(SocketControl, RanksAtDifferentCollectivesAreTold) {
  for (int round = 0; round < 100; ++round) {
    TestFolder folder;
    const auto outcomes =
        run_socket_ranks(test_options(folder, 3), [&](int rank, SocketWorld& world) {
          world.control->all_gather(rank == 1 ? "norm of step 12" : "vote of step 12", "");
        });
    for (int rank : {0, 1}) {
      ASSERT_EQ(outcomes[rank].code, ExitCode::kRankDied);
      ASSERT_THAT(outcomes[rank].text, AllOf(HasSubstr("rank 1 is at \"norm of step 12\""),
                                             HasSubstr("rank 0 is at \"vote of step 12\"")));
    }
    ASSERT_TRUE(outcomes[2].threw);
  }
}

TEST(SocketControl, ARankThatDoesNotComeIsNamedOnAllOthers) {
  TestFolder folder;
  auto options = test_options(folder, 3);
  options.deadline = 100ms;
  std::latch told(2);
  const auto outcomes = run_socket_ranks(options, [&](int rank, SocketWorld& world) {
    if (rank == 2) return told.wait();
    try {
      world.control->all_gather("vote", "");
    } catch (const CommError&) {
      told.count_down();
      throw;
    }
  });
  for (int rank : {0, 1}) {
    EXPECT_EQ(outcomes[rank].code, ExitCode::kStall);
    EXPECT_EQ(outcomes[rank].text, "rank 0 waited 100 ms in \"vote\" for rank 2");
  }
}

}  // namespace
}  // namespace stagecraft
