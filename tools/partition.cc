// `partition`: measures or counts what every block costs, splits the model into stages, writes
// plan.yaml; checks plans and reports on them.
#include "cli.h"
#include "partition_commands.h"

namespace stagecraft {
namespace {

const CLI::Range kPixels(64, 16384);

void add_view_options(CLI::App& app, ViewFiles& views) {
  app.add_option("--html", views.html, "write the report as one page for a browser");
  app.add_option("--trace", views.trace, "write the simulated step for ui.perfetto.dev");
}

// What is planned, and for what.
void add_planning_options(CLI::App& app, PlanCommand& command) {
  app.add_option("--config", command.config, "training file (configs/train)");
  app.add_option("--cluster", command.cluster,
                 "cluster file (configs/clusters), or its name there");
  auto* profile = app.add_flag("--profile", command.profile, "measure the blocks on this machine");
  app.add_option("--threads", command.threads, "threads a rank will have, for --profile")
      ->needs(profile)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--cost-table", command.cost_table, "save the costs here, reuse them when there");
  app.add_option("--model", command.flags.model, "model file, instead of the training file's");
  app.add_option("--width", command.flags.width, "pixels, a multiple of 64")->check(kWhole);
  app.add_option("--height", command.flags.height, "pixels, a multiple of 64")->check(kWhole);
  app.add_option("--precision", command.flags.precision, "fp32, fp16 or bf16");
  app.add_option("--batch", command.flags.batch, "samples of an optimizer step")->check(kWhole);
  app.add_option_function<std::string>(
      "--micro-batch",
      [&command](const std::string& text) {
        command.any_micro_batch = text == "any";
        if (command.any_micro_batch) return;
        int64_t size = 0;
        if (!kWhole(text).empty() || !CLI::detail::lexical_cast(text, size))
          throw CLI::ValidationError("--micro-batch", "give a number of samples, or any");
        command.flags.micro_batch = size;
      },
      "samples going through together; any: what is best among the divisors of the batch");
  app.add_option("--what", command.flags.what, "what is trained: controlnet or unet")
      ->check(CLI::IsMember({"controlnet", "unet"}));
  app.add_flag("--sd-unlocked", command.flags.sd_unlocked, "train the UNet's decoder as well");
  app.add_flag("--only-mid-control", command.flags.only_mid_control,
               "only the middle residual is added");
  app.add_option(
         "--prefer", command.prefer,
         "what to choose: time (fastest), memory (leanest), balanced (leanest within 5 % of "
         "the fastest)")
      ->check(CLI::IsMember({"time", "balanced", "memory"}))
      ->capture_default_str();
  app.add_option("--fix", command.fixed, "block=rank: where a block must run; may be repeated");
  app.add_flag("--no-recompute", command.no_recompute,
               "no block may run again in the backward pass to save memory");
  app.add_option("--time-limit", command.time_limit,
                 "seconds for all searching; the best found is taken, and how much better another "
                 "could be is said")
      ->check(positive_up_to(86400));
  app.add_option("--stages", command.stages,
                 "stages; what is best, up to one per device and 16, unless given")
      ->check(CLI::Range(1, 64));
  app.add_option(
         "--memory-cap", command.memory_caps,
         "most a rank may hold by the memory model, its process base included (all lines of the "
         "report); 20GiB, 20480MiB or 20480 (MiB), one value or one per rank, as in 20GiB,8GiB")
      ->check(kSizes);
  app.add_option("--schedule", command.schedule, "1f1b, gpipe, or any: what is best")
      ->check(CLI::IsMember([] {
        std::vector<std::string> names = generator_names();
        names.emplace_back("any");
        return names;
      }()))
      ->capture_default_str();
  app.add_flag("--json", command.json, "print one JSON object");
}

void add_plan_options(CLI::App& app, PlanCommand& command) {
  add_planning_options(app, command);
  app.add_option("-o,--output", command.output, "plan file to write")
      ->check(kNotEmpty)
      ->capture_default_str();
  add_view_options(app, command.views);
}

void add_graph_options(CLI::App& app, GraphCommand& command) {
  app.add_option("--model", command.model, "model file (configs/models)")->required();
  app.add_option("--width", command.width, "pixels")->check(kPixels)->capture_default_str();
  app.add_option("--height", command.height, "pixels")->check(kPixels)->capture_default_str();
  app.add_option("--precision", command.precision, "fp32, fp16 or bf16")->capture_default_str();
  app.add_option("--what", command.trainable.what, "what is trained: controlnet or unet")
      ->check(CLI::IsMember({"controlnet", "unet"}))
      ->capture_default_str();
  app.add_flag("!--sd-unlocked", command.trainable.sd_locked, "train the UNet's decoder as well");
  app.add_flag("--only-mid-control", command.trainable.only_mid_control,
               "only the middle residual is added");
  app.add_flag("--json", command.json, "print one JSON object");
}

void add_verify_options(CLI::App& app, VerifyCommand& command) {
  app.add_option("plan", command.plan, "plan file")->required();
  app.add_option("-o,--output", command.output, "write the plan with predictions made anew");
  app.add_option("--cluster", command.cluster, "for -o: cluster file, or its name");
  app.add_option("--cost-table", command.cost_table, "for -o: costs to use, or where to save them");
  app.add_flag("--json", command.json, "print one JSON object");
}

void add_report_options(CLI::App& app, ReportCommand& command) {
  app.add_option("plan", command.plan, "plan file")->required();
  app.add_option("--measured", command.measured, "measured.json of a run of this plan");
  app.add_option("--seen-on-one-device", command.seen_on_one_device,
                 "what your trainer takes on one device, as 22GiB or 22542 (MiB): says what data "
                 "parallel would need")
      ->check(kSize);
  add_view_options(app, command.views);
  app.add_option("--cluster", command.cluster,
                 "for the simulated step: cluster file, or its name; the plan's unless given");
  app.add_option("--cost-table", command.cost_table,
                 "for the simulated step: costs to use, or where to save them");
  app.add_flag("--json", command.json, "print one JSON object");
}

int run(int argc, char** argv) {
  CLI::App app("Splits the training of a diffusion model into pipeline stages.", "partition");
  add_version(app);
  app.require_subcommand(0, 1);
  PlanCommand plan, compare;
  GraphCommand graph;
  VerifyCommand verify;
  ReportCommand report;
  add_plan_options(app, plan);
  CLI::App* compare_app =
      app.add_subcommand("compare", "the plan beside known splits, one device and data parallel");
  CLI::App* graph_app = app.add_subcommand("graph", "print the blocks of a model");
  CLI::App* verify_app =
      app.add_subcommand("verify", "check a plan, all faults with line and column");
  CLI::App* report_app = app.add_subcommand("report", "memory balance, predicted and measured");
  add_planning_options(*compare_app, compare);
  add_graph_options(*graph_app, graph);
  add_verify_options(*verify_app, verify);
  add_report_options(*report_app, report);
  if (!parse_command_line(app, argc, argv)) return 0;
  if (graph_app->parsed()) return run_graph(graph);
  if (verify_app->parsed()) return run_verify(verify);
  if (report_app->parsed()) return run_report(report);
  const bool is_compared = compare_app->parsed();
  const PlanCommand& planned = is_compared ? compare : plan;
  if (planned.cluster.empty()) {
    throw Error(ExitCode::kUsage,
                "--cluster is missing: name a file of configs/clusters; see partition --help");
  }
  return is_compared ? run_compare(planned) : run_plan(planned);
}

}  // namespace
}  // namespace stagecraft

int main(int argc, char** argv) { return stagecraft::run_main(argc, argv, stagecraft::run); }
