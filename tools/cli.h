// What the mains of both programs share: errors become one line on standard error and an exit code,
// never a crash.
//
// Exit codes are those of partitioner/base/error.h. With `--json` anywhere on the command line the
// last line on standard error is a JSON object {"code": 3, "reason": "..."}.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "partitioner/base/error.h"

namespace stagecraft {

inline int report_failure(ExitCode code, std::string_view reason, bool as_json) {
  fmt::print(stderr, "{}\n", reason);
  if (as_json) {
    const nlohmann::json object = {{"code", static_cast<int>(code)}, {"reason", reason}};
    fmt::print(stderr, "{}\n",
               object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return static_cast<int>(code);
}

// Runs the program's body and maps what it throws. A reader of the output that went away ends the
// program with an I/O failure instead of a signal.
inline int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  std::signal(SIGPIPE, SIG_IGN);
  bool as_json = false;
  for (int i = 1; i < argc; ++i) as_json = as_json || std::string_view(argv[i]) == "--json";
  try {
    const int code = body(argc, argv);
    if (std::fflush(stdout) != 0) {
      return report_failure(ExitCode::kIo, "cannot write to standard output", as_json);
    }
    return code;
  } catch (const Error& error) {
    std::fflush(stdout);
    return report_failure(error.code(), error.what(), as_json);
  } catch (const std::bad_alloc&) {
    return report_failure(ExitCode::kOutOfMemory, "out of memory on this machine", as_json);
  } catch (const std::system_error& error) {  // output that cannot be written, among others
    return report_failure(ExitCode::kIo, error.what(), as_json);
  } catch (const std::exception& error) {
    return report_failure(ExitCode::kInternal, fmt::format("internal error: {}", error.what()),
                          as_json);
  } catch (...) {
    return report_failure(ExitCode::kInternal, "internal error of unknown kind", as_json);
  }
}

inline void add_version(CLI::App& app) {
  app.set_version_flag("--version", std::string("stagecraft ") + STAGECRAFT_VERSION);
}

// Parses the command line. Returns true to go on, false after `--help` or `--version` was printed.
// Throws Error (2) with one line that names the option.
inline bool parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& success) {
    app.exit(success);
    return false;
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::kUsage, fmt::format("{}; see {} --help", error.what(), app.get_name()));
  }
}

}  // namespace stagecraft
