// The program that the launcher's tests start as ranks: this test program itself, with a behaviour
// as its argument.
#pragma once

#include <string>

namespace stagecraft {

// Environment of a test rank: the rank that misbehaves, while the others train.
inline constexpr char kActorVariable[] = "TEST_ACTOR";
// And a descriptor for lines "rank pid\n", in step 1.
inline constexpr char kPipeVariable[] = "TEST_PIPE";

// Runs as a rank and returns its exit code. Behaviours of the actor:
//   train · kill · segv · early · error · stop (SIGSTOP) · spin · lines · resist (answers SIGTERM
//   with an empty line only) · late (finishes with 0 when SIGTERM comes)
int run_test_rank(const std::string& behaviour);

}  // namespace stagecraft
