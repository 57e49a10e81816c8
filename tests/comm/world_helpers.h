// Runs a function per rank in threads of its own and hands back what each threw.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "partitioner/base/error.h"
#include "pipeline/comm/communicator.h"

namespace stagecraft {

inline constexpr MessageTag kTag{.step = 3, .message = 7};

// A message of one piece.
inline std::vector<std::span<const std::byte>> whole(const std::vector<std::byte>& bytes) {
  return {std::span(bytes)};
}

// What a rank ended with: nothing, or the error's code and line.
struct RankOutcome {
  bool threw = false;
  ExitCode code = ExitCode::kOk;
  int peer = -1;
  std::string text;
};

inline std::vector<RankOutcome> run_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<RankOutcome> outcomes(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankOutcome& outcome = outcomes[rank];
      try {
        body(rank);
      } catch (const CommError& error) {
        outcome = {.threw = true, .code = error.code(), .peer = error.peer(), .text = error.what()};
      } catch (const Error& error) {
        outcome = {.threw = true, .code = error.code(), .text = error.what()};
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

// Bytes that depend on the seed and the position.
inline std::vector<std::byte> pattern_bytes(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (auto& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

}  // namespace stagecraft
