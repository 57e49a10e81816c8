// The cache encodes what is not there, once, and nothing of a data set with a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "partitioner/base/error.h"
#include "pipeline/data/cache.h"
#include "pipeline/data/cache_layout.h"
#include "pipeline/dataset/manifest.h"
#include "tests/support/expect_error.h"
#include "tests/support/fake_encoder.h"
#include "tests/support/picture_set.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using Phase = CacheProgress::Phase;

class Cache : public ::testing::Test {
 protected:
  CacheSummary fill() { return fill_cache(set_.read(), encoder_, set_.options()); }
  std::string fault() {
    return data_fault([this] { fill(); });
  }
  int64_t tensor_files() const {
    int64_t files = 0;
    if (!fs::exists(set_.cache())) return 0;
    for (const auto& entry : fs::recursive_directory_iterator(set_.cache())) {
      files += entry.path().extension() == ".safetensors";
    }
    return files;
  }
  std::string latents_file(size_t sample) {
    const CacheManifest manifest = read_manifest(fill().manifest, set_.read());
    return CacheStore(set_.cache(), kLatentsFolder).path_of(manifest.latents[sample]);
  }

  PictureSet set_{3};
  FakeEncoder encoder_{64, 96};
};

TEST_F(Cache, EncodesEachPictureAndCaptionOnceAndTheEmptyCaption) {
  set_.add("s0.png", "t0.png", "caption 0");  // nothing new
  set_.add("s1.png", "t1.png", "");
  const CacheSummary summary = fill();
  EXPECT_EQ(encoder_.images, 3);
  EXPECT_EQ(encoder_.captions, 4);
  EXPECT_EQ(summary.images, 3);
  EXPECT_EQ(summary.captions, 4);
  EXPECT_EQ(summary.encoded_images, 3);
  EXPECT_EQ(summary.encoded_captions, 4);
  EXPECT_EQ(tensor_files(), 7);
}

TEST_F(Cache, SecondRunEncodesNothing) {
  const CacheSummary first = fill();
  const auto written = fs::last_write_time(first.manifest);
  const CacheSummary second = fill();
  EXPECT_EQ(encoder_.images, 3);
  EXPECT_EQ(encoder_.captions, 4);
  EXPECT_EQ(second.encoded_images + second.encoded_captions, 0);
  EXPECT_EQ(second.written, Bytes{});
  EXPECT_EQ(second.manifest, first.manifest);
  EXPECT_EQ(fs::last_write_time(second.manifest), written);
}

TEST_F(Cache, SecondRunOpensNoPicture) {
  fill();
  for (const char* name : {"s0.png", "t0.png"}) {  // same size and time stamp, other content
    const auto time = fs::last_write_time(set_.path(name));
    set_.write(name, std::string(fs::file_size(set_.path(name)), 'x'));
    fs::last_write_time(set_.path(name), time);
  }
  EXPECT_EQ(fault(), "no fault");
}

TEST_F(Cache, ChangedPictureIsEncodedAgain) {
  fill();
  set_.write("t1.png", encode(PictureSet::picture(9), ".png"));
  fill();
  EXPECT_EQ(encoder_.images, 4);
  EXPECT_EQ(encoder_.captions, 4);
}

TEST_F(Cache, TouchedPictureIsNotEncodedAgain) {
  fill();
  fs::last_write_time(set_.path("t1.png"), fs::file_time_type::clock::now());
  fill();
  EXPECT_EQ(encoder_.images, 3);
}

TEST_F(Cache, NewLineEncodesOnlyWhatIsNew) {
  fill();
  set_.add("s0.png", "t0.png", "a new caption");
  fill();
  EXPECT_EQ(encoder_.images, 3);
  EXPECT_EQ(encoder_.captions, 5);
}

TEST_F(Cache, OtherWeightsAndResolutionsDoNotMeetOldFiles) {
  const std::string first = fill().manifest;
  encoder_.weights = "b";
  EXPECT_NE(fill().manifest, first);
  EXPECT_EQ(encoder_.images, 6);
  EXPECT_EQ(encoder_.captions, 8);
  FakeEncoder larger(128, 128);
  CacheOptions options = set_.options();
  options.width = options.height = 128;
  fill_cache(set_.read(), larger, options);
  EXPECT_EQ(larger.images, 3);
}

TEST_F(Cache, NeverHoldsBothNetworksAndReleasesThem) {
  fill();
  EXPECT_FALSE(encoder_.both_at_once);
  EXPECT_FALSE(encoder_.holds_vae || encoder_.holds_text);
}

TEST_F(Cache, DamagedFilesAreMadeAgain) {
  const std::string file = latents_file(1);
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_EQ(fill().encoded_images, 1);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).write("\xFF\xFF\xFF", 3);
  EXPECT_EQ(fill().encoded_images, 1);
  std::ofstream(file, std::ios::trunc).close();
  EXPECT_EQ(fill().encoded_images, 1);
  EXPECT_EQ(fill().encoded_images, 0);
}

TEST_F(Cache, DamagedManifestIsMadeAgainFromTheFiles) {
  const CacheSummary first = fill();
  for (const char* damage : {"", "{", "[]", R"({"format": "stagecraft cache 1"})"}) {
    std::ofstream(first.manifest, std::ios::trunc) << damage;
    EXPECT_EQ(fill().encoded_images, 0) << damage;
    EXPECT_NO_THROW(read_manifest(first.manifest, set_.read())) << damage;
  }
}

TEST_F(Cache, InterruptedFillGoesOnWhereItStopped) {
  struct Stop {};
  EXPECT_THROW(fill_cache(set_.read(), encoder_, set_.options(),
                          [](const CacheProgress& progress) {
                            if (progress.phase == Phase::kImages && progress.done == 2)
                              throw Stop();
                          }),
               Stop);
  EXPECT_EQ(fill().encoded_images, 1);
  EXPECT_EQ(encoder_.images, 3);
}

TEST_F(Cache, TellsTheDiskNeedBeforeAnythingIsWritten) {
  std::vector<Phase> phases;
  Bytes need;
  int64_t files = -1;
  const CacheSummary summary =
      fill_cache(set_.read(), encoder_, set_.options(), [&](const CacheProgress& progress) {
        if (phases.empty() || phases.back() != progress.phase) phases.push_back(progress.phase);
        if (progress.phase == Phase::kNeed) {
          need = progress.bytes;
          files = tensor_files();
          EXPECT_EQ(progress.total, 7);
        }
      });
  EXPECT_THAT(phases, ::testing::ElementsAre(Phase::kChecking, Phase::kNeed, Phase::kImages,
                                             Phase::kCaptions));
  EXPECT_EQ(files, 0);
  EXPECT_EQ(need, summary.written);
  Bytes on_disk;
  for (const auto& entry : fs::recursive_directory_iterator(set_.cache())) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto size = static_cast<int64_t>(entry.file_size());
    on_disk += Bytes{(size + 4095) / 4096 * 4096};
  }
  EXPECT_EQ(on_disk, need);
}

TEST_F(Cache, RefusesAFolderThatCannotBeMade) {
  const TempFolder folder;
  CacheOptions options = set_.options();
  options.folder = folder.write("file", "") + "/cache";
  try {
    fill_cache(set_.read(), encoder_, options);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("--cache"));
  }
}

TEST_F(Cache, NamesEveryFaultWithItsLineAndEncodesNothing) {
  set_.add("s0.png", "gone.png", "missing");  // 4
  set_.write("cut.png", encode(PictureSet::picture(0), ".png").substr(0, 99));
  set_.add("cut.png", "t0.png", "broken");  // 5
  set_.write("wide.png", encode(ramp_picture(96, 64), ".png"));
  set_.add("wide.png", "t0.png", "sizes differ");  // 6
  set_.write("tiny.png", encode(ramp_picture(8, 8), ".png"));
  set_.add("tiny.png", "tiny.png", "too small");  // 7
  set_.add_line("{");                             // 8
  ASSERT_EQ(::mkfifo(set_.path("pipe.png").c_str(), 0600), 0);
  set_.add("pipe.png", "t0.png", "a pipe");                                                 // 9
  set_.add_line("{\"source\": \"s0.png\", \"target\": \"t0.png\", \"prompt\": \"\xFF\"}");  // 10
  set_.add("s0.png", "gone.png", "missing again");                                          // 11
  const std::string index = set_.path("prompt.json");
  EXPECT_THAT(fault(), AllOf(HasSubstr(index + ":4: target \"gone.png\": no such file"),
                             HasSubstr(index + ":5: source \"cut.png\": the PNG file is cut short"),
                             HasSubstr(index + ":6: source \"wide.png\" has 96 x 64"),
                             HasSubstr(index + ":7: target \"tiny.png\": 8 x 8 pixels would be"),
                             HasSubstr(index + ":8: not a JSON object"),
                             HasSubstr(index + ":9: source \"pipe.png\": not a regular file"),
                             HasSubstr(index + ":10: not UTF-8"),
                             HasSubstr(index + ":11: target \"gone.png\": no such file")));
  EXPECT_EQ(encoder_.images + encoder_.captions, 0);
  EXPECT_EQ(tensor_files(), 0);
}

TEST_F(Cache, FaultThatAppearsLaterIsFoundAndStaysFound) {
  fill();
  fs::remove(set_.path("s2.png"));
  EXPECT_THAT(fault(), HasSubstr(":3: source \"s2.png\": no such file"));
  EXPECT_THAT(fault(), HasSubstr(":3: source \"s2.png\": no such file"));
}

TEST_F(Cache, SizesAreComparedUpright) {
  const std::string turned = with_orientation(encode(ramp_picture(96, 64), ".jpg"), 6);
  set_.write("turned.jpg", turned);
  set_.add("turned.jpg", "t0.png", "hint is turned");
  set_.add("s0.png", "turned.jpg", "target is turned");
  EXPECT_EQ(fault(), "no fault");
}

TEST_F(Cache, RefusesFewerSamplesThanABatch) {
  CacheOptions options = set_.options();
  options.batch = 4;
  EXPECT_THROW(fill_cache(set_.read(), encoder_, options), InputError);
}

TEST_F(Cache, OnlyOneProcessFillsAtATime) {
  std::atomic<bool> waited = false;
  auto held = std::make_unique<CacheLock>(set_.cache(), nullptr);
  std::thread other([&] { CacheLock(set_.cache(), [&] { waited = true; }); });
  while (!waited) std::this_thread::yield();
  held.reset();
  other.join();
}

}  // namespace
}  // namespace stagecraft
