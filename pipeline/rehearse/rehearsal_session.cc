#include "pipeline/rehearse/rehearsal_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "partitioner/base/format.h"
#include "pipeline/comm/socket.h"
#include "pipeline/launch/launcher.h"
#include "pipeline/rehearse/rehearsal_loop.h"
#include "pipeline/rehearse/room.h"
#include "pipeline/train/children.h"
#include "pipeline/train/console.h"
#include "pipeline/train/session.h"

namespace stagecraft {

ExitCode run_rehearsal(const RehearsalOptions& options, const std::vector<std::string>& command) {
  const Rehearsal rehearsal = load_rehearsal(options);
  require_room(rehearsal, available_memory());
  if (!options.json) {
    say(fmt::format("{} steps of {} or more on {} ranks; nothing is loaded or trained\n",
                    options.steps + 1, millis_text(rehearsal.planned.makespan), rehearsal.ranks()));
  }
  const std::chrono::milliseconds stall_limit(options.timeout_seconds * 1000);
  const LaunchResult ended =
      launch({.command = command,
              .ranks = rehearsal.ranks(),
              .labels = stage_labels(rehearsal.resolved.placement),
              .environment = {{kRoleVariable, kRankRole}},
              .threads_per_rank = 1,
              .stall_limit = stall_limit,
              .grace_limit = std::max(LaunchOptions{}.grace_limit, stall_limit)});
  if (ended.code != ExitCode::kOk) throw Error(ended.code, ended.reason);
  return ExitCode::kOk;
}

ExitCode run_rehearsed_rank(const RehearsalOptions& options, RankEnvironment& environment) {
  return run_as_child(environment, [&](RankRequests& requests) {
    environment.page.set_section(Section::kConnect, -1);
    const Rehearsal rehearsal = load_rehearsal(options);
    SocketWorldOptions world_options = environment.socket_options();
    world_options.deadline = std::chrono::seconds(options.timeout_seconds);
    SocketWorld world = connect_socket_world(world_options);
    return rehearse_rank(rehearsal, {.comm = *world.communicator,
                                     .control = *world.control,
                                     .page = environment.page,
                                     .requests = requests});
  });
}

}  // namespace stagecraft
