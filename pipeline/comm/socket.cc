#include "pipeline/comm/socket.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "pipeline/comm/socket_parts.h"

namespace stagecraft {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Cookie make_cookie() {
  Cookie cookie;
  if (::getrandom(cookie.data(), cookie.size(), 0) != static_cast<ssize_t>(cookie.size())) {
    throw CommError(ExitCode::kStartup, -1,
                    fmt::format("no random bytes: {}", std::strerror(errno)));
  }
  return cookie;
}

std::string cookie_text(const Cookie& cookie) {
  std::string text;
  for (const std::byte byte : cookie) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

Cookie parse_cookie(const std::string& text) {
  Cookie cookie;
  bool valid = text.size() == 2 * cookie.size();
  for (size_t i = 0; valid && i < cookie.size(); ++i) {
    const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    valid = high >= 0 && low >= 0;
    cookie[i] = static_cast<std::byte>(high << 4 | low);
  }
  if (!valid)
    throw CommError(ExitCode::kStartup, -1, "the run's cookie is not 32 hexadecimal digits");
  return cookie;
}

SocketWorld connect_socket_world(const SocketWorldOptions& options) {
  check(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
        "the rank is one of the world");
  Connections connections = meet(options);
  const auto fate = std::make_shared<SocketFate>(options.rank);
  return {.communicator = make_socket_communicator(options, std::move(connections.data), fate),
          .control = make_socket_control(options, std::move(connections.control), fate)};
}

}  // namespace stagecraft
