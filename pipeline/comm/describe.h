// Words for error lines, the same in every transport.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "pipeline/comm/communicator.h"

namespace stagecraft {

// "message 12 of step 3 (4194304 bytes)"; outside of training "message 12 (4194304 bytes)".
std::string describe_message(MessageTag tag, int64_t bytes);

// "1.5 s" or "20 ms".
std::string describe_duration(std::chrono::milliseconds duration);

// "message 12 of step 3 (8 bytes) met a receive of message 13 of step 3 (8 bytes)" with both ranks
// named.
std::string describe_mismatch(int sender, int receiver, const std::string& sent,
                              const std::string& expected);

}  // namespace stagecraft
