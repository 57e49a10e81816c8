#include "pipeline/comm/in_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "tests/comm/world_helpers.h"

namespace stagecraft {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kNever = 60s;

TEST(InProcess, DeliversBytesSplitDifferently) {
  InProcessWorld world(2, kNever);
  const auto sent = pattern_bytes(1000, 1);
  std::vector<std::byte> got(1000);
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto comm = world.communicator(rank);
    if (rank == 0) {
      std::span<const std::byte> all(sent);
      comm->send(1, kTag, {all.first(0), all.first(300), all.subspan(300)}, nullptr)->wait();
      EXPECT_EQ(comm->bytes_sent(), 1000);
    } else {
      std::span<std::byte> all(got);
      comm->receive(0, kTag, {all.first(999), all.subspan(999), {}}, nullptr)->wait();
    }
  });
  EXPECT_EQ(got, sent);
  EXPECT_FALSE(outcomes[0].threw);
  EXPECT_FALSE(outcomes[1].threw);
}

TEST(InProcess, DeliversAnEmptyMessage) {
  InProcessWorld world(2, kNever);
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto comm = world.communicator(rank);
    if (rank == 0) {
      comm->send(1, kTag, {}, nullptr)->wait();
    } else {
      comm->receive(0, kTag, {}, nullptr)->wait();
    }
  });
  EXPECT_FALSE(outcomes[0].threw) << outcomes[0].text;
}

TEST(InProcess, ASendIsNotDoneBeforeItsReceiveIsPosted) {
  InProcessWorld world(2, 30ms);
  const auto sent = pattern_bytes(8, 1);
  const auto comm0 = world.communicator(0);
  const auto comm1 = world.communicator(1);
  const auto operation = comm0->send(1, kTag, whole(sent), nullptr);
  try {
    operation->wait();
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), ExitCode::kStall);
    EXPECT_EQ(error.peer(), 1);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 waited 30 ms for rank 1 to receive"),
                                    HasSubstr("message 7 of step 3 (8 bytes)")));
  }
}

TEST(InProcess, AWaitingReceiveStallsNamingTheSender) {
  InProcessWorld world(2, 30ms);
  std::vector<std::byte> got(8);
  const auto comm0 = world.communicator(0);
  const auto comm1 = world.communicator(1);
  const auto operation = comm1->receive(0, kTag, {std::span(got)}, nullptr);
  try {
    operation->wait();
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), ExitCode::kStall);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 waited 30 ms for message 7 of step 3 (8 bytes) "
                                        "from rank 0"));
  }
  EXPECT_THROW(comm0->send(1, kTag, {}, nullptr), CommError) << "the world is dead after an error";
}

TEST(InProcess, MessagesOfAPairArriveInOrder) {
  InProcessWorld world(2, kNever);
  constexpr int kMessages = 200;
  std::vector<std::vector<std::byte>> sent, got;
  for (int i = 0; i < kMessages; ++i) {
    sent.push_back(pattern_bytes(i * 13 % 257, i));
    got.emplace_back(sent.back().size());
  }
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto comm = world.communicator(rank);
    std::vector<std::shared_ptr<Operation>> operations;
    for (int i = 0; i < kMessages; ++i) {
      const MessageTag tag{.step = 0, .message = i};
      operations.push_back(rank == 0 ? comm->send(1, tag, whole(sent[i]), nullptr)
                                     : comm->receive(0, tag, {std::span(got[i])}, nullptr));
    }
    for (auto& operation : operations) operation->wait();
  });
  EXPECT_FALSE(outcomes[0].threw) << outcomes[0].text;
  EXPECT_FALSE(outcomes[1].threw) << outcomes[1].text;
  EXPECT_EQ(got, sent);
}

TEST(InProcess, ADifferentTagFailsOnBothRanksNamingBoth) {
  InProcessWorld world(2, kNever);
  std::vector<std::byte> memory(8);
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto comm = world.communicator(rank);
    if (rank == 0) {
      comm->send(1, {.step = 3, .message = 7}, whole(memory), nullptr)->wait();
    } else {
      comm->receive(0, {.step = 3, .message = 9}, {std::span(memory)}, nullptr)->wait();
    }
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ExitCode::kRankDied);
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 0 sent message 7 of step 3 (8 bytes)"),
                                    HasSubstr("expected message 9 of step 3 (8 bytes)")));
  }
}

TEST(InProcess, ADifferentSizeFails) {
  InProcessWorld world(2, kNever);
  std::vector<std::byte> memory(8);
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto comm = world.communicator(rank);
    if (rank == 0) {
      comm->send(1, kTag, whole(memory), nullptr)->wait();
    } else {
      comm->receive(0, kTag, {std::span(memory).first(7)}, nullptr)->wait();
    }
  });
  EXPECT_THAT(outcomes[1].text, AllOf(HasSubstr("(8 bytes)"), HasSubstr("(7 bytes)")));
}

TEST(InProcess, CrossedReceivesBeforeSendsNeedAsynchronousPosts) {
  // Both ranks post their receive first: with one blocking queue per rank this order can never end.
  const auto run = [](PostMode mode) {
    const bool blocking = mode == PostMode::kBlockingQueue;
    InProcessWorld world(2, blocking ? 30ms : std::chrono::milliseconds(kNever), mode);
    std::vector<std::byte> out(8), in[2] = {std::vector<std::byte>(8), std::vector<std::byte>(8)};
    return run_ranks(2, [&](int rank) {
      const auto comm = world.communicator(rank);
      const auto receive = comm->receive(1 - rank, kTag, {std::span(in[rank])}, nullptr);
      comm->send(1 - rank, kTag, whole(out), nullptr)->wait();
      receive->wait();
    });
  };
  EXPECT_FALSE(run(PostMode::kAsynchronous)[0].threw);
  EXPECT_TRUE(run(PostMode::kBlockingQueue)[0].threw);
}

TEST(InProcess, AbortWakesEveryWaiterWithItsReason) {
  InProcessWorld world(3, kNever);
  std::latch posted(2);
  const auto outcomes = run_ranks(3, [&](int rank) {
    const auto comm = world.communicator(rank);
    if (rank == 2) {
      posted.wait();
      comm->abort("no memory left");
      comm->send(0, kTag, {}, nullptr);
    } else {
      std::vector<std::byte> got(8);
      const auto operation = comm->receive(1 - rank, kTag, {std::span(got)}, nullptr);
      posted.count_down();
      operation->wait();
    }
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.text, "rank 2 aborted: no memory left");
    EXPECT_EQ(outcome.peer, 2);
  }
}

TEST(InProcess, ARankThatLeavesIsToldToThoseWhoWaitForIt) {
  InProcessWorld world(2, kNever);
  std::latch posted(1);
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto comm = world.communicator(rank);
    if (rank == 0) {
      posted.wait();
      return;
    }
    std::vector<std::byte> got(8);
    const auto operation = comm->receive(0, kTag, {std::span(got)}, nullptr);
    posted.count_down();
    EXPECT_THROW(operation->wait(), PeerLostError);
    operation->wait();
  });
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 0 has left"));
}

TEST(InProcess, KeepAliveIsHeldUntilWaitReturns) {
  InProcessWorld world(2, kNever);
  const auto comm0 = world.communicator(0);
  const auto comm1 = world.communicator(1);
  auto memory = std::make_shared<std::vector<std::byte>>(8);
  std::weak_ptr<std::vector<std::byte>> held = memory;
  std::vector<std::byte> got(8);
  const std::span<const std::byte> piece(*memory);
  const auto send = comm0->send(1, kTag, {piece}, std::move(memory));
  comm1->receive(0, kTag, {std::span(got)}, nullptr)->wait();
  EXPECT_FALSE(held.expired());
  send->wait();
  EXPECT_TRUE(held.expired());
}

TEST(InProcess, AMessageToItselfIsRefused) {
  InProcessWorld world(2, kNever);
  EXPECT_THROW(world.communicator(0)->send(0, kTag, {}, nullptr), InternalError);
}

TEST(InProcessControl, GathersByRank) {
  InProcessWorld world(3, kNever);
  std::vector<std::vector<std::string>> got(3);
  const auto outcomes = run_ranks(3, [&](int rank) {
    const auto control = world.control(rank);
    for (int round = 0; round < 50; ++round) {
      got[rank] = control->all_gather("round " + std::to_string(round),
                                      std::string(rank, 'a' + rank) + std::to_string(round));
    }
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(outcomes[rank].threw) << outcomes[rank].text;
    EXPECT_THAT(got[rank], ElementsAre("49", "b49", "cc49"));
  }
}

TEST(InProcessControl, RanksAtDifferentCollectivesAreTold) {
  InProcessWorld world(2, kNever);
  const auto outcomes = run_ranks(2, [&](int rank) {
    world.control(rank)->all_gather(rank == 0 ? "handshake" : "norm of step 12", "");
  });
  for (const auto& outcome : outcomes) {
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("\"handshake\""), HasSubstr("\"norm of step 12\"")));
  }
}

TEST(InProcessControl, MissingRanksAreNamedAtTheDeadline) {
  InProcessWorld world(4, 30ms);
  const auto control1 = world.control(1);
  const auto control3 = world.control(3);
  const auto outcomes = run_ranks(
      2, [&](int i) { (i == 0 ? world.control(0) : world.control(2))->all_gather("vote", ""); });
  EXPECT_TRUE(outcomes[0].threw && outcomes[1].threw);
  for (const auto& outcome : outcomes) EXPECT_THAT(outcome.text, HasSubstr("1, 3"));
}

TEST(InProcessControl, ACommunicatorAbortWakesIt) {
  InProcessWorld world(2, kNever);
  const auto outcomes = run_ranks(2, [&](int rank) {
    const auto comm = world.communicator(rank);
    const auto control = world.control(rank);
    if (rank == 1) comm->abort("stop");
    control->all_gather("vote", "");
  });
  EXPECT_EQ(outcomes[0].text, "rank 1 aborted: stop");
}

}  // namespace
}  // namespace stagecraft
