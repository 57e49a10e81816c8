#include "pipeline/checkpoint/manifest.h"

#include <gmock/gmock.h>

#include "partitioner/base/sha256.h"
#include "tests/checkpoint/made_checkpoint.h"
#include "tests/support/expect_error.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

CheckpointManifest small_manifest() {
  return made_manifest(7, {{.name = "net.a.safetensors", .bytes = 12, .sha256 = sha256_hex("a")}});
}

// `from` replaced by `to` in the body, under a digest that is right.
std::string edited(const std::string& from, const std::string& to) {
  const std::string text = manifest_text(small_manifest());
  std::string body = text.substr(text.find('\n') + 1);
  body.replace(body.find(from), from.size(), to);
  return "{\"sha256\": \"" + sha256_hex(body) + "\",\n" + body;
}

CaughtError refusal(const std::string& text) {
  return caught([&] { parse_manifest(text, "m.json"); });
}

TEST(CheckpointManifest, ReadsBackAsItWasWritten) {
  const CheckpointManifest manifest = small_manifest();
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m.json"), manifest);
  EXPECT_THAT(manifest_text(manifest), HasSubstr(manifest_digest(manifest)));
}

TEST(CheckpointManifest, ARightDigestDoesNotMakeAPathOfAName) {
  for (const char* name : {"../x", "/etc/passwd", ".hidden", "a/b", "manifest.json", ""}) {
    const CaughtError error = refusal(edited("net.a.safetensors", name));
    EXPECT_EQ(error.code, ExitCode::kNoCheckpoint) << name;
    EXPECT_THAT(error.message, HasSubstr("is no plain file name"));
  }
}

TEST(CheckpointManifest, OneOfAnotherVersionIsNoDamage) {
  const CaughtError error = refusal(edited("stagecraft.checkpoint.1", "stagecraft.checkpoint.2"));
  EXPECT_EQ(error.code, ExitCode::kPlanMismatch);
  EXPECT_THAT(error.message, HasSubstr("m.json: made by another version of this program"));
}

TEST(CheckpointManifest, WhatIsWrongUnderARightDigestIsNamed) {
  EXPECT_THAT(refusal(edited("\"steps\"", "\"stops\"")).message, HasSubstr("`steps` is missing"));
  EXPECT_THAT(refusal(edited("\"4\"", "4")).message, HasSubstr("no text"));
  EXPECT_THAT(refusal(edited("\"bytes\": 12", "\"bytes\": -1")).message, HasSubstr("files.bytes"));
}

}  // namespace
}  // namespace stagecraft
