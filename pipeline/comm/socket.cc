#include "pipeline/comm/socket.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "pipeline/comm/socket_parts.h"

namespace stagecraft {

Cookie make_cookie() {
  Cookie cookie;
  if (::getrandom(cookie.data(), cookie.size(), 0) != static_cast<ssize_t>(cookie.size())) {
    throw CommError(ExitCode::kStartup, -1,
                    fmt::format("no random bytes: {}", std::strerror(errno)));
  }
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
