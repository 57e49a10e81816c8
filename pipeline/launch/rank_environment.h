// What a rank learns from the launcher that started it.
#pragma once

#include <optional>
#include <string>

#include "pipeline/comm/socket.h"
#include "pipeline/launch/progress_page.h"

namespace stagecraft {

// Names of the variables. The cookie is in the progress page, not in the environment.
inline constexpr char kRankVariable[] = "STAGECRAFT_RANK";
inline constexpr char kSizeVariable[] = "STAGECRAFT_SIZE";
inline constexpr char kFolderVariable[] = "STAGECRAFT_FOLDER";
inline constexpr char kProgressVariable[] = "STAGECRAFT_PROGRESS_FD";

struct RankEnvironment {
  int rank = 0;
  int size = 1;
  std::string folder;  // of the run's sockets
  Cookie cookie{};
  ProgressPage page;

  // What connect_socket_world needs; the deadlines are the defaults.
  SocketWorldOptions socket_options() const;
};

// Empty if this process was not started by the launcher. Takes the page's descriptor and removes
// the variables, so that processes which the rank starts are no ranks. Call once, before other
// threads start. Throws CommError (8) if the variables make no sense.
std::optional<RankEnvironment> rank_environment();

}  // namespace stagecraft
