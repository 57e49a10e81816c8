// Runs something that must throw and gives back its message and exit code.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "partitioner/base/error.h"

namespace stagecraft {

struct CaughtError {
  bool thrown = false;
  ExitCode code = ExitCode::kOk;
  std::string message;
};

template <typename F>
CaughtError caught(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return {true, error.code(), error.what()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace stagecraft
