// A checkpoint's manifest, under a digest that is right: the rest is what a program might have
// written.
#include "partitioner/base/sha256.h"
#include "pipeline/checkpoint/manifest.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_checkpoint_manifest(std::string_view input) {
  const std::string body(input);
  CheckpointManifest manifest;
  try {
    manifest = parse_manifest("{\"sha256\": \"" + sha256_hex(body) + "\",\n" + body, "m.json");
  } catch (const InputError& error) {
    return accept(error, {ExitCode::kNoCheckpoint, ExitCode::kPlanMismatch});
  }
  require(parse_manifest(manifest_text(manifest), "m.json") == manifest,
          "a manifest reads back as it was written");
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(checkpoint_manifest)
}  // namespace stagecraft::fuzz
