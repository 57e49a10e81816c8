#include "pipetrain_rehearse.h"

#include <algorithm>

#include "cli.h"
#include "file_arguments.h"
#include "pipeline/launch/launcher.h"
#include "pipeline/rehearse/rehearsal_session.h"

namespace stagecraft {
namespace {

constexpr std::string_view kFlag = "--rehearse";

// Nothing when only help was wanted.
std::optional<RehearsalOptions> read_rehearsal(int argc, char** argv) {
  RehearsalOptions options;
  CLI::App app{
      "Runs a plan's schedule with the real processes, messages and executor, while blocks sleep "
      "for their planned time and hold their planned bytes. No weights and no data are read.",
      "pipetrain"};
  add_version(app);
  app.add_option("--rehearse", options.plan, "plan.yaml, made by `partition`")
      ->check(kNotEmpty)
      ->required();
  app.add_option("--cluster", options.cluster,
                 "cluster whose devices the blocks' times are counted for, and whose links the "
                 "plan was made with (default: the plan's)")
      ->check(kNotEmpty);
  app.add_option("--cost-table", options.cost_table, "file of measured costs, used instead")
      ->check(kNotEmpty);
  app.add_option("--steps", options.steps, "steps that count, after one that does not")
      ->capture_default_str()
      ->check(CLI::Range(1L, 1000000L));
  app.add_option("--scale", options.scale, "factor on the blocks' times; messages keep their size")
      ->capture_default_str()
      ->check(positive_up_to(1000));
  app.add_option("--scale-memory", options.scale_memory,
                 "factor on the bytes of parameters and saved tensors; 0: blocks keep nothing")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--trace", options.trace,
                 "file for the timeline of the last step, to be opened in ui.perfetto.dev")
      ->check(kNotEmpty);
  app.add_option("--measured", options.measured,
                 "file for what the ranks held and took, for `partition report --measured`")
      ->check(kNotEmpty);
  app.add_option("--timeout", options.timeout_seconds,
                 "seconds that any wait may last without progress")
      ->capture_default_str()
      ->check(CLI::Range(1L, 86400L));
  app.add_flag("--json", options.json, "print one JSON object, also when something fails");
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  if (options.cluster.empty()) {
    const Plan plan = read_plan(options.plan);
    options.cluster = cluster_file_of(plan);
    if (options.cluster.empty()) {
      throw Error(ExitCode::kUsage,
                  fmt::format("{} was made for cluster {}, whose file is not in configs/clusters: "
                              "give --cluster FILE",
                              options.plan, plan.cluster));
    }
  } else {
    options.cluster = cluster_file(options.cluster);
  }
  Inputs inputs = cluster_inputs(options.cluster);
  inputs.insert(inputs.end(), {{"plan", options.plan}, {"cost table", options.cost_table}});
  check_output("--trace", options.trace, inputs);
  inputs.emplace_back("trace", options.trace);
  check_output("--measured", options.measured, inputs);
  return options;
}

}  // namespace

bool wants_rehearsal(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](std::string_view argument) {
    return argument == kFlag || argument.starts_with("--rehearse=");
  });
}

int rehearse(int argc, char** argv, std::optional<RankEnvironment>& environment) {
  const auto options = read_rehearsal(argc, argv);
  if (!options) return 0;
  if (environment) return static_cast<int>(run_rehearsed_rank(*options, *environment));
  std::vector<std::string> command{own_program()};
  command.insert(command.end(), argv + 1, argv + argc);
  return static_cast<int>(run_rehearsal(*options, command));
}

}  // namespace stagecraft
