#include "tests/launch/test_rank.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "pipeline/launch/rank_environment.h"

namespace stagecraft {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

int variable_as_number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

void misbehave(const std::string& behaviour, RankEnvironment& me) {
  if (behaviour == "kill") ::raise(SIGKILL);
  if (behaviour == "segv") {
    ::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
  }
  if (behaviour == "early") ::_exit(0);
  if (behaviour == "stop") ::raise(SIGSTOP);
  if (behaviour == "spin") {
    me.page.set_section(Section::kBackward, 2);
    for (;;) ::pause();
  }
  if (behaviour == "error") throw ResourceError("out of memory: 5 MiB over");
}

// Passes 4 MiB around the ring, votes, until a rank was asked to stop; 50 steps at most unless
// `for_ever`.
int train(const std::string& behaviour, RankEnvironment& me) {
  SocketWorldOptions options = me.socket_options();
  options.startup_deadline = options.deadline = std::chrono::seconds(20);
  me.page.set_section(Section::kConnect, -1);
  std::vector<std::byte> out(4 << 20), in(4 << 20);  // outlive the transfers, also after an error
  SocketWorld world = connect_socket_world(options);
  const int pipe = variable_as_number(kPipeVariable, -1);
  const bool acts = me.rank == variable_as_number(kActorVariable, -1);
  const bool for_ever = behaviour == "train";
  const int next = (me.rank + 1) % me.size, previous = (me.rank + me.size - 1) % me.size;
  int code = 0;
  for (int step = 0; code == 0 && (for_ever || step < 5); ++step) {
    me.page.set_section(Section::kForward, step);
    if (pipe >= 0 && step == 1) ::dprintf(pipe, "%d %d\n", me.rank, ::getpid());
    me.page.set_action(0, "F0.0", 0);
    const MessageTag tag{.step = step, .message = 0};
    const auto send =
        world.communicator->send(next, tag, {std::span<const std::byte>(out)}, nullptr);
    const auto receive = world.communicator->receive(previous, tag, {std::span(in)}, nullptr);
    if (acts && step == 2) misbehave(behaviour, me);
    me.page.set_section(Section::kReceive, step);
    receive->wait();
    send->wait();
    me.page.set_section(Section::kVote, step);
    for (const auto& vote : world.control->all_gather("vote", stop_requested ? "stop" : "")) {
      if (!vote.empty()) code = static_cast<int>(ExitCode::kTerminated);
    }
  }
  me.page.set_section(Section::kFinish, -1);
  world.control->all_gather("goodbye", "");
  me.page.set_goodbye();
  return code;
}

}  // namespace

int run_test_rank(const std::string& behaviour) {
  auto me = rank_environment();
  if (!me) return 1;
  if (behaviour == "lines") {
    for (int i = 0; i < 200; ++i) {
      ::dprintf(STDERR_FILENO, "line ");
      ::dprintf(STDERR_FILENO, "%d of %d\n", i, me->rank);
    }
    ::dprintf(STDERR_FILENO, "no end");
    me->page.set_goodbye();
    return 0;
  }
  if (behaviour == "late") {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &stop, nullptr);
    ::dprintf(variable_as_number(kPipeVariable, -1), "%d %d\n", me->rank, ::getpid());
    int signal = 0;
    ::sigwait(&stop, &signal);
    me->page.set_goodbye();
    return 0;
  }
  if (behaviour == "resist") {
    static const int pipe = variable_as_number(kPipeVariable, -1);
    ::signal(SIGTERM, [](int) { [[maybe_unused]] const auto n = ::write(pipe, "\n", 1); });
    ::dprintf(pipe, "%d %d\n", me->rank, ::getpid());
    for (;;) ::pause();
  }
  struct sigaction action{};
  action.sa_handler = [](int) { stop_requested = 1; };
  ::sigaction(SIGTERM, &action, nullptr);
  try {
    return train(behaviour, *me);
  } catch (const PeerLostError& error) {
    me->page.set_error(error.code(), error.what(), true);
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    me->page.set_error(error.code(), error.what(), false);
    return static_cast<int>(error.code());
  }
}

}  // namespace stagecraft

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--rank-behaviour") == 0)
    return stagecraft::run_test_rank(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
