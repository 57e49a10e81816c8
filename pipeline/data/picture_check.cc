#include "pipeline/data/picture_check.h"

#include <fmt/format.h>

#include <optional>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/sha256.h"
#include "partitioner/base/strict_json.h"

namespace stagecraft {
namespace {

// Each picture once, however many lines name it.
class Checker {
 public:
  explicit Checker(const PictureCheck& check) : check_(check) {}

  // Facts, or nothing after naming the fault.
  std::optional<PictureFacts> look_at(const char* key, const std::string& path, int64_t line,
                                      DataFaults& faults) {
    if (const auto seen = facts_.find(path); seen != facts_.end()) return seen->second;
    auto broken = broken_.find(path);
    if (broken == broken_.end()) {
      try {
        return facts_[path] = facts_of(path);
      } catch (const InputError& error) {
        broken = broken_.emplace(path, error.what()).first;
      }
    }
    faults.add(line, fmt::format("{} \"{}\": {}", key, printable(path), broken->second));
    return std::nullopt;
  }
  std::map<std::string, PictureFacts> take() { return std::move(facts_); }

 private:
  PictureFacts facts_of(const std::string& path) const {
    if (const auto known = check_.known.find(path);
        known != check_.known.end() &&
        known->second.stamp == find_data_file(check_.dataset, path).stamp) {
      return known->second;
    }
    return load_picture(check_.dataset, path).facts;
  }

  const PictureCheck& check_;
  std::map<std::string, PictureFacts> facts_;
  std::map<std::string, std::string> broken_;
};

}  // namespace

LoadedPicture load_picture(const Dataset& dataset, const std::string& path) {
  const DataFile file = find_data_file(dataset, path);
  std::string content;
  try {
    content = read_file(file.path, kMaxImageBytes);
  } catch (const InputError& error) {
    throw InputError(ExitCode::kDataInvalid, error.what());
  }
  LoadedPicture loaded = {.picture = decode_picture(content), .facts = {}};
  loaded.facts = {.stamp = file.stamp,
                  .hash = sha256_hex(content),
                  .width = loaded.picture.width,
                  .height = loaded.picture.height};
  return loaded;
}

std::map<std::string, PictureFacts> check_pictures(const PictureCheck& check, DataFaults& faults) {
  Checker checker(check);
  const auto total = static_cast<int64_t>(check.dataset.samples.size());
  for (int64_t i = 0; i < total; ++i) {
    const SampleFiles& sample = check.dataset.samples[static_cast<size_t>(i)];
    const auto source = checker.look_at("source", sample.source, sample.line, faults);
    const auto target = checker.look_at("target", sample.target, sample.line, faults);
    if (source && target && (source->width != target->width || source->height != target->height)) {
      faults.add(sample.line, fmt::format("source \"{}\" has {} x {} pixels and target \"{}\" {} x "
                                          "{} (turned upright by EXIF); "
                                          "they must be equal",
                                          printable(sample.source), source->width, source->height,
                                          printable(sample.target), target->width, target->height));
    } else if (target) {
      const std::string fault =
          size_fault(target->width, target->height, check.width, check.height);
      if (!fault.empty()) {
        faults.add(sample.line, fmt::format("target \"{}\": {}", printable(sample.target), fault));
      }
    }
    if (check.progress) check.progress(i + 1, total);
  }
  return checker.take();
}

}  // namespace stagecraft
