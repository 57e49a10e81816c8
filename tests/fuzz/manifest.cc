// The cache's manifest.
#include "pipeline/dataset/manifest.h"

#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

// The bound of a manifest comes from its data set; this one has a thousand samples.
const Dataset& thousand_samples() {
  static const Dataset dataset = [] {
    Dataset made;
    made.samples.assign(1000, {.line = 1, .source = "s.png", .target = "t.png", .caption = {}});
    return made;
  }();
  return dataset;
}

void fuzz_manifest(std::string_view input) {
  CacheManifest manifest;
  try {
    manifest = read_manifest(folder().write("manifest.json", input), thousand_samples());
  } catch (const InputError& error) {
    return accept(error, {ExitCode::kDataInvalid});
  }
  if (input.size() > kMostReadBack) return;
  const std::string again = folder().file("again.json");
  write_manifest(again, manifest);
  require(read_manifest(again, thousand_samples()) == manifest,
          "a manifest reads back as it was written");
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(manifest)
}  // namespace stagecraft::fuzz
