// What the mains of both programs share: errors become one line on standard error and an exit code,
// never a crash.
//
// Exit codes are those of partitioner/base/error.h. With `--json` anywhere on the command line the
// last line on standard error is a JSON object {"code": 3, "reason": "..."}.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/base/utf8.h"

namespace stagecraft {

// What file names and other people's text may hold is shown as `?`: control characters (lines of a
// message end as they do) and what is no UTF-8.
inline std::string presentable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto c = static_cast<unsigned char>(text.front());
    const bool shown = length > 0 && (c == '\n' || (c >= 0x20 && c != 0x7f));
    out += shown ? text.substr(0, length) : "?";
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

inline int report_failure(ExitCode code, std::string_view message, bool as_json) {
  const std::string reason = presentable(message);
  // Standard error may be closed or full; that must not hide the exit code.
  std::fputs(fmt::format("{}\n", reason).c_str(), stderr);
  if (as_json) {
    const nlohmann::json object = {{"code", static_cast<int>(code)}, {"reason", reason}};
    const std::string text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    std::fputs((text + '\n').c_str(), stderr);
  }
  return static_cast<int>(code);
}

// A program that is started with a standard descriptor closed would give its number to the next
// file it opens, and print into that file.
inline void fill_standard_descriptors() {
  for (const int descriptor : {0, 1, 2}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    const int null = ::open("/dev/null", O_RDWR);
    if (null >= 0 && null != descriptor) {
      ::dup2(null, descriptor);
      ::close(null);
    }
  }
}

// For paths: an empty one would mean the root of the file system.
inline const CLI::Validator kNotEmpty(
    [](const std::string& text) { return text.empty() ? std::string("is empty") : std::string(); },
    "", "");

// 0 to 2^63 - 1, as in YAML files.
inline const CLI::Validator kWhole(
    [](const std::string& text) {
      int64_t value = -1;
      const char* end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, value);
      if (error == std::errc() && stop == end && value >= 0) return std::string();
      return fmt::format("{} is not a whole number from 0 to {}", text, INT64_MAX);
    },
    "", "");

// A finite number in (0, `largest`].
inline CLI::Validator positive_up_to(double largest) {
  return CLI::Validator(
      [largest](const std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool good = end != text.c_str() && *end == '\0' && value > 0 && value <= largest;
        return good ? std::string()
                    : fmt::format("{} is not a number above 0 and up to {}", text, largest);
      },
      "", "");
}

// For `parse_size`.
inline const CLI::Validator kSize(
    [](const std::string& text) {
      return parse_size(text) ? std::string()
                              : fmt::format("{} is no size: write 20GiB, 20480MiB or 20480 (MiB)",
                                            text.empty() ? "nothing" : text);
    },
    "", "");

// For `sizes_of`: sizes between commas.
inline const CLI::Validator kSizes(
    [](const std::string& text) {
      for (const std::string& size : CLI::detail::split(text + " ", ',')) {
        if (const std::string fault = kSize(CLI::detail::trim_copy(size)); !fault.empty())
          return fault;
      }
      return std::string();
    },
    "", "");
inline std::vector<Bytes> sizes_of(const std::vector<std::string>& texts) {
  std::vector<Bytes> sizes;
  for (const std::string& text : texts)
    for (const std::string& size : CLI::detail::split(text, ','))
      sizes.push_back(parse_size(CLI::detail::trim_copy(size)).value());  // kSizes has checked it
  return sizes;
}

// Runs the program's body and maps what it throws. A reader of the output that went away ends the
// program with an I/O failure instead of a signal.
inline int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  fill_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the limit is an error like a full disk
  bool as_json = false;
  for (int i = 1; i < argc; ++i) as_json = as_json || std::string_view(argv[i]) == "--json";
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).find('\n') == std::string_view::npos) continue;
    return report_failure(ExitCode::kUsage, fmt::format("argument {} holds a line break", i),
                          as_json);
  }
  try {
    const int code = body(argc, argv);
    std::cout.flush();
    if (!std::cout || std::fflush(stdout) != 0) {
      return report_failure(ExitCode::kIo, "cannot write to standard output", as_json);
    }
    return code;
  } catch (const Error& error) {
    std::fflush(stdout);
    return report_failure(error.code(), error.what(), as_json);
  } catch (const std::bad_alloc&) {
    return report_failure(ExitCode::kOutOfMemory, "out of memory on this machine", as_json);
  } catch (const std::filesystem::filesystem_error& error) {
    return report_failure(ExitCode::kIo,
                          fmt::format("{}: {}", error.path1().string(), error.code().message()),
                          as_json);
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
    for (int i = 1; i < argc; ++i) {
      const std::string_view argument = argv[i];
      if (argument.empty() ||
          (argument.starts_with("--") && argument.find('=') == argument.size() - 1))
        throw Error(
            ExitCode::kUsage,
            fmt::format("argument {}{} is empty: give a value", i,
                        i > 1 && argument.empty() ? fmt::format(", after {},", argv[i - 1]) : ""));
    }
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& success) {
    app.exit(success);
    return false;
  } catch (const CLI::ExtrasError&) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("not expected: {}; see {} --help",
                    CLI::detail::join(app.remaining(/*recurse=*/true), " "), app.get_name()));
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::kUsage, fmt::format("{}; see {} --help", error.what(), app.get_name()));
  }
}

}  // namespace stagecraft
