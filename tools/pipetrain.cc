// pipetrain: trains what a plan describes, one process per rank.
#include <set>
#include <sstream>

#include "cli.h"
#include "file_arguments.h"
#include "pipeline/launch/launcher.h"
#include "pipeline/launch/rank_environment.h"
#include "pipeline/train/children.h"
#include "pipeline/train/session.h"
#include "pipetrain_rehearse.h"

namespace stagecraft {
namespace {

struct CommandLine {
  TrainOptions options;
  std::string config, audit_steps;
  bool help_only = false;
};

// "0,1,19" and "0-19", ascending and each once. Throws Error (2).
std::vector<int64_t> read_audit_steps(const std::string& text, int64_t steps) {
  std::set<int64_t> chosen;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int64_t first = -1, last = -1;
    char dash = '-';
    std::istringstream numbers(part);
    numbers >> first;
    const bool single = numbers.eof();
    if (single) {
      last = first;
    } else {
      numbers >> dash >> last;
    }
    if (!numbers || !numbers.eof() || dash != '-' || first < 0 || last < first) {
      throw Error(ExitCode::kUsage,
                  fmt::format("--audit-steps: {} is not a list such as 0,1,19 or 0-19", text));
    }
    if (last >= steps) {
      throw Error(ExitCode::kUsage,
                  fmt::format("--audit-steps: {} is beyond the last step, {}", last, steps - 1));
    }
    constexpr int64_t kMost = 10000;
    if (last - first >= kMost) {
      throw Error(ExitCode::kUsage, fmt::format("--audit-steps: at most {} steps in a row", kMost));
    }
    for (int64_t step = first; step <= last; ++step) chosen.insert(step);
  }
  return {chosen.begin(), chosen.end()};
}

// Reads flags over the training file over defaults.
CommandLine read_command_line(int argc, char** argv) {
  CommandLine line;
  TrainOptions& options = line.options;
  CLI::App app{
      "Trains a plan made by `partition`: one process per rank, bit for bit the result of one "
      "process.",
      "pipetrain"};
  app.footer(
      "`pipetrain --rehearse plan.yaml` tries a plan without weights or data; its own flags: "
      "`pipetrain "
      "--rehearse plan.yaml --help`.");
  add_version(app);
  uint64_t init_random = 0;
  app.add_option("--plan", options.plan, "plan.yaml, made by `partition`")
      ->check(kNotEmpty)
      ->required();
  app.add_option("--data", options.data, "folder with prompt.json (fill50k layout)")
      ->check(kNotEmpty)
      ->required();
  app.add_option("--out", options.out, "folder for trained weights, metrics and measured.json")
      ->check(kNotEmpty)
      ->required();
  const auto* weights = app.add_option("--weights", options.weights,
                                       "diffusers folder: unet/ vae/ text_encoder/ tokenizer/")
                            ->check(kNotEmpty);
  const auto* random = app.add_option("--init-random", init_random,
                                      "seeded random weights of the real shapes instead")
                           ->check(kWhole);
  app.add_option("--tokenizer", options.tokenizer,
                 "folder with vocab.json and merges.txt (default: WEIGHTS/tokenizer)")
      ->check(kNotEmpty);
  app.add_option("--cache", options.cache,
                 "folder of encoded pictures and captions (default: DATA/.stagecraft_cache)")
      ->check(kNotEmpty);
  app.add_option("--config", line.config, "train.yaml: optimizer, steps, seed");
  const auto* steps =
      app.add_option("--steps", options.steps, "optimizer steps")->check(CLI::Range(1L, 1L << 40));
  const auto* seed =
      app.add_option("--seed", options.seed, "of order, noise, timesteps and latents (default 42)")
          ->check(kWhole);
  const auto* rate = app.add_option("--lr", options.optimizer.learning_rate, "learning rate")
                         ->check(positive_up_to(1000));
  app.add_option("--evaluate", options.evaluate_batches,
                 "batches of a fixed set whose mean loss is shown before and after")
      ->check(CLI::Range(0, 100000));
  app.add_option("--threads", options.threads_per_rank, "threads of each rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--timeout", options.timeout_seconds,
                 "seconds that any wait may last without progress (default 600)")
      ->check(CLI::Range(1L, 86400L));
  auto* audit = app.add_option("--audit", options.audit,
                               "folder for all numbers of some steps, which tools/audit.py redoes "
                               "with diffusers and torch.optim")
                    ->check(kNotEmpty);
  app.add_option("--audit-steps", line.audit_steps,
                 "0-based, such as 0,1,19 or 0-19 (default: the first two)")
      ->needs(audit)
      ->check(kNotEmpty);
  app.add_option("--trace", options.trace,
                 "file for the timeline of the last step, to be opened in ui.perfetto.dev")
      ->check(kNotEmpty);
  app.add_option("--save-every", options.save_every,
                 "steps between checkpoints in OUT/checkpoints (default: none)")
      ->check(CLI::Range(0L, 1L << 40));
  app.add_option("--keep-last", options.keep_last, "newest checkpoints that are kept (default 2)")
      ->check(CLI::Range(1L, 1L << 40));
  app.add_option("--keep-every", options.keep_every,
                 "keep the checkpoints of every so many steps as well (default: none)")
      ->check(CLI::Range(0L, 1L << 40));
  app.add_option("--resume", options.resume,
                 "auto: go on from the newest whole checkpoint of OUT; or a checkpoint's folder")
      ->check(kNotEmpty);
  bool as_json = false;  // read by run_main
  app.add_flag("--json", as_json, "end with one JSON object when something fails");
  if (!parse_command_line(app, argc, argv)) {
    line.help_only = true;
    return line;
  }
  if ((weights->count() == 0) == (random->count() == 0)) {
    throw Error(ExitCode::kUsage, weights->count() == 0
                                      ? "give the weights: --weights DIR, or --init-random SEED"
                                      : "--weights and --init-random: give one of them");
  }
  if (random->count() > 0 && !options.audit.empty()) {
    throw Error(ExitCode::kUsage,
                "--audit needs --weights: tools/audit.py redoes a step from that folder; "
                "docs/audit.md makes one of random weights");
  }
  if (random->count() > 0) options.init_random = init_random;
  if (!options.resume.empty() && !options.audit.empty()) {
    throw Error(ExitCode::kUsage,
                "--audit and --resume: give one of them; the audit counts Adam's steps from 0");
  }
  if (options.tokenizer.empty()) {
    if (options.weights.empty())
      throw Error(ExitCode::kUsage, "--init-random needs --tokenizer DIR");
    options.tokenizer = options.weights + "/tokenizer";
  }
  if (!line.config.empty()) {
    const TrainConfig config = read_train_config(line.config);
    const double given_rate = options.optimizer.learning_rate;
    options.optimizer = config.optimizer;
    if (rate->count() > 0) options.optimizer.learning_rate = given_rate;
    if (steps->count() == 0) options.steps = config.steps;
    if (seed->count() == 0) options.seed = config.seed;
    options.caption_dropout = config.caption_dropout;
    options.config = config;
  }
  if (!options.audit.empty()) {
    const std::string first_two = options.steps == 1 ? "0" : "0,1";
    options.audit_steps =
        read_audit_steps(line.audit_steps.empty() ? first_two : line.audit_steps, options.steps);
  }
  return line;
}

int body(int argc, char** argv) {
  auto environment = rank_environment();
  if (wants_rehearsal(argc, argv)) return rehearse(argc, argv, environment);
  const CommandLine line = read_command_line(argc, argv);
  if (line.help_only) return 0;
  if (environment) return static_cast<int>(run_child(line.options, *environment));
  check_output("--trace", line.options.trace,
               {{"plan", line.options.plan}, {"training file", line.config}}, line.options.out);
  std::vector<std::string> command{own_program()};
  command.insert(command.end(), argv + 1, argv + argc);
  return static_cast<int>(run_session(line.options, command));
}

}  // namespace
}  // namespace stagecraft

int main(int argc, char** argv) { return stagecraft::run_main(argc, argv, stagecraft::body); }
