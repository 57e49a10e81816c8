#include "pipeline/train/children.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>

#include "models/text/tokenizer.h"
#include "partitioner/base/files.h"
#include "pipeline/comm/socket.h"
#include "pipeline/data/cache.h"
#include "pipeline/data/cached_samples.h"
#include "pipeline/data/encoder.h"
#include "pipeline/train/console.h"
#include "pipeline/train/job.h"
#include "pipeline/train/rank_loop.h"

namespace stagecraft {
namespace {

RankRequests requests;
static_assert(std::atomic<bool>::is_always_lock_free);

void take_request(int signal) { (signal == SIGUSR1 ? requests.save : requests.stop).store(true); }

void show_cache_progress(const CacheProgress& progress) {
  switch (progress.phase) {
    case CacheProgress::Phase::kWaiting:
      say("cache: another process fills it, waiting\n");
      break;
    case CacheProgress::Phase::kNeed:
      say(fmt::format("cache: {} files to encode need {:.1f} MiB of disk\n", progress.total,
                      progress.bytes.mib()));
      break;
    default:
      break;
  }
}

LoopEnd encode(const Job& job, ProgressPage& page) {
  at::set_num_threads(job.options.threads_per_rank);
  page.set_section(Section::kLoad, -1);
  const Dataset dataset = read_dataset(job.options.data);
  const auto weights = open_weights(job, WeightUse::kEncoding);
  const ClipTokenizer tokenizer(job.options.tokenizer);
  const TrainConfig& train = job.plan.train;
  const auto encoder = make_encoder({job.model, *weights, tokenizer}, train.width, train.height);
  const CacheSummary summary = fill_cache(
      dataset, *encoder,
      {.folder = job.options.cache.empty() ? default_cache_folder(dataset) : job.options.cache,
       .width = train.width,
       .height = train.height,
       .batch = train.batch},
      [&](const CacheProgress& progress) {
        page.beat();
        if (requests.stop.load()) {
          throw Error(ExitCode::kTerminated, "stopped while the cache was filled");
        }
        show_cache_progress(progress);
      });
  say(fmt::format("cache: {} pictures and {} captions, of which {} and {} encoded now\n",
                  summary.images, summary.captions, summary.encoded_images,
                  summary.encoded_captions));
  write_file_atomically(manifest_note(job.options), summary.manifest);
  return LoopEnd::kFinished;
}

LoopEnd train(const Job& job, RankEnvironment& environment) {
  ProgressPage& page = environment.page;
  page.set_section(Section::kConnect, -1);
  SocketWorldOptions options = environment.socket_options();
  options.deadline = std::chrono::seconds(job.options.timeout_seconds);
  SocketWorld world = connect_socket_world(options);
  const TrainConfig& train = job.plan.train;
  const Dataset dataset = read_dataset(job.options.data);
  CachedSamples samples(dataset, job.model,
                        {.manifest = read_file(manifest_note(job.options), 1 << 16),
                         .width = train.width,
                         .height = train.height,
                         .seed = job.options.seed,
                         .caption_dropout = job.options.caption_dropout});
  return run_rank(
      job, samples, dataset.index_hash,
      {.comm = *world.communicator, .control = *world.control, .page = page, .requests = requests});
}

}  // namespace

std::string manifest_note(const TrainOptions& options) { return options.out + "/.cache-manifest"; }

ExitCode run_child(const TrainOptions& options, RankEnvironment& environment) {
  return run_as_child(environment, [&](RankRequests&) {
    const char* role = std::getenv(kRoleVariable);
    Job job = load_job(options);
    if (const char* checkpoint = std::getenv(kCheckpointVariable)) job.checkpoint = checkpoint;
    const bool encodes = role != nullptr && std::string_view(role) == kEncoderRole;
    return encodes ? encode(job, environment.page) : train(job, environment);
  });
}

ExitCode run_as_child(RankEnvironment& environment,
                      const std::function<LoopEnd(RankRequests&)>& body) {
  struct sigaction action{};
  action.sa_handler = take_request;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  std::signal(SIGINT, SIG_IGN);
  const auto fail = [&](ExitCode code, std::string_view text, bool secondary = false) {
    environment.page.set_error(code, text, secondary);
    return code;
  };
  try {
    const LoopEnd end = body(requests);
    environment.page.set_goodbye();
    return end == LoopEnd::kFinished ? ExitCode::kOk : ExitCode::kTerminated;
  } catch (const PeerLostError& error) {
    return fail(error.code(), error.what(), true);
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kOutOfMemory,
                "out of memory on this machine: use more ranks, a smaller micro-batch "
                "or recompute");
  } catch (const c10::Error& error) {
    return fail(ExitCode::kInternal, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(ExitCode::kInternal, error.what());
  }
}

}  // namespace stagecraft
