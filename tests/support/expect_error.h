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

// What is wrong with the data as the user is told; "no fault" when nothing is thrown.
template <typename F>
std::string data_fault(F&& f) {
  try {
    f();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::kDataInvalid);
    return error.what();
  }
  return "no fault";
}

}  // namespace stagecraft
