// JSON from files that may be hostile: duplicate keys, deep nesting, bad UTF-8, NUL and trailing
// text are refused.
//
// Pure functions; any thread. Internal to models/weights and models/text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "partitioner/base/error.h"

namespace stagecraft {

// `where` starts every message. Throws InputError(`code`) naming line and column, or the key.
nlohmann::json parse_strict_json(std::string_view text, const std::string& where,
                                 ExitCode code = ExitCode::kNoCheckpoint);

// Text out of a file for a message of one line: at most 160 bytes, '?' for all but printable ASCII,
// so that the message stays one line and valid UTF-8.
std::string printable(std::string_view text);

}  // namespace stagecraft
