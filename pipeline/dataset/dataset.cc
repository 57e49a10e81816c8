#include "pipeline/dataset/dataset.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/sha256.h"
#include "partitioner/base/strict_json.h"
#include "partitioner/base/utf8.h"

namespace stagecraft {
namespace {

using nlohmann::json;

constexpr int64_t kMaxIndexBytes = int64_t{1} << 30;
constexpr size_t kMaxLineBytes = size_t{1} << 20;
constexpr size_t kMaxLineValues = 10'000;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

[[noreturn]] void refuse(const std::string& message) {
  throw InputError(ExitCode::kDataInvalid, message);
}

// A line as a JSON object with no key twice. Throws InputError.
json parse_object(std::string_view line) {
  if (const auto bad = first_invalid_utf8(line)) {
    refuse(fmt::format("not UTF-8 at byte {} of the line; save the file as UTF-8", *bad + 1));
  }
  json object;
  try {
    object = parse_strict_json(line, kMaxLineValues);
  } catch (const JsonFault& fault) {
    refuse(fault.byte() > 0
               ? fmt::format("not a JSON object: error at byte {} of the line", fault.byte())
               : fault.what());
  }
  if (!object.is_object())
    refuse("not a JSON object; every line is {\"source\": …, \"target\": …, \"prompt\": …}");
  return object;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(fmt::format("key \"{}\" is missing", key));
  if (!found->is_string()) refuse(fmt::format("\"{}\" is {}, not a text", key, found->type_name()));
  return found->get<std::string>();
}

// The path as written stays below the folder; links are looked at when the file is found.
void require_inside(const char* key, const std::string& path) {
  const std::filesystem::path parts(path);
  bool leaves = parts.is_absolute();
  for (const auto& part : parts) leaves = leaves || part == "..";
  if (path.empty() || path.find('\0') != std::string::npos || path.size() >= PATH_MAX || leaves) {
    refuse(fmt::format("\"{}\" is \"{}\", not a path inside the folder", key, printable(path)));
  }
}

SampleFiles parse_sample(std::string_view text, int64_t line) {
  const json object = parse_object(text);
  SampleFiles sample = {.line = line,
                        .source = text_of(object, "source"),
                        .target = text_of(object, "target"),
                        .caption = text_of(object, "prompt")};
  require_inside("source", sample.source);
  require_inside("target", sample.target);
  if (static_cast<int64_t>(sample.caption.size()) > kMaxCaptionBytes) {
    refuse(fmt::format("\"prompt\" has {} bytes, at most {} are allowed", sample.caption.size(),
                       kMaxCaptionBytes));
  }
  return sample;
}

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr),
                                                             &std::free);
  return resolved ? std::string(resolved.get()) : std::string();
}

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// The lines of a file that may be long and is hashed on the way.
class IndexLines {
 public:
  explicit IndexLines(const std::string& path) : file_(path, kMaxIndexBytes) {}

  // The next line without its end, valid until the next call; nothing behind the last one. A line
  // that is too long comes cut, but longer than kMaxLineBytes.
  std::optional<std::string_view> next() {
    size_t end;
    while ((end = text_.find('\n', at_ + searched_)) == std::string::npos && !over_ &&
           text_.size() - at_ <= kMaxLineBytes) {
      searched_ = text_.size() - at_;
      fill();
    }
    searched_ = 0;
    if (at_ == text_.size()) return std::nullopt;
    end = std::min(end, text_.size());
    const std::string_view line = std::string_view(text_).substr(at_, end - at_);
    at_ = std::min(end + 1, text_.size());
    return line;
  }
  // Of what was read.
  std::string hash() { return hash_.hex(); }

 private:
  void fill() {
    constexpr size_t kPiece = 256 << 10;
    text_.erase(0, at_);
    at_ = 0;
    const size_t had = text_.size();
    text_.resize(had + kPiece);
    text_.resize(had + file_.read(text_.data() + had, kPiece));
    over_ = text_.size() < had + kPiece;
    hash_.add(std::string_view(text_).substr(had));
  }

  FileStream file_;
  Sha256 hash_;
  std::string text_;  // from line `at_` on
  size_t at_ = 0, searched_ = 0;
  bool over_ = false;
};

void read_samples(IndexLines& lines, Dataset& dataset) {
  int64_t number = 0;
  while (auto line = lines.next()) {
    if (++number == 1 && line->starts_with(kByteOrderMark)) {
      line->remove_prefix(kByteOrderMark.size());
    }
    if (line->size() > kMaxLineBytes) {
      dataset.faults.add(
          number, fmt::format("line of more than {} bytes, the rest is not read", kMaxLineBytes));
      return;
    }
    if (blank(*line)) continue;
    if (dataset.samples.empty() && dataset.faults.empty() &&
        line->at(line->find_first_not_of(" \t\r")) == '[') {
      dataset.faults.add(number,
                         "one JSON array; write one object a line instead, without commas between");
      return;
    }
    try {
      dataset.samples.push_back(parse_sample(*line, number));
    } catch (const InputError& error) {
      dataset.faults.add(number, error.what());
      if (dataset.faults.size() + 1 == DataFaults::kMostFaults) {
        dataset.faults.add(number, "too many faults, the rest is not read");
        return;
      }
    }
  }
}

}  // namespace

Dataset read_dataset(const std::string& folder) {
  Dataset dataset;
  dataset.folder = real_path(folder);
  if (dataset.folder.empty()) refuse(fmt::format("{}: {}", folder, std::strerror(errno)));
  dataset.index_path = (std::filesystem::path(folder) / "prompt.json").string();
  dataset.faults = DataFaults(dataset.index_path);
  std::optional<IndexLines> lines;
  try {
    lines.emplace(dataset.index_path);
    read_samples(*lines, dataset);
  } catch (const InputError& error) {
    refuse(fmt::format("{}; a data set is a folder with prompt.json, one JSON object a line",
                       error.what()));
  }
  dataset.index_hash = lines->hash();
  return dataset;
}

void require_valid(const Dataset& dataset, int64_t batch) {
  dataset.faults.throw_if_any();
  const auto size = static_cast<int64_t>(dataset.samples.size());
  if (size == 0) refuse(fmt::format("{}:1: no samples", dataset.index_path));
  if (size < batch) {
    refuse(fmt::format(
        "{}:{}: {} samples are fewer than one batch of {}; add samples or lower the batch",
        dataset.index_path, dataset.samples.back().line, size, batch));
  }
}

DataFile find_data_file(const Dataset& dataset, const std::string& relative) {
  const std::string written = dataset.folder + "/" + relative;
  const std::string path = real_path(written);
  if (path.empty()) {
    refuse(errno == ENOENT ? std::string("no such file") : std::string(std::strerror(errno)));
  }
  const std::string root = dataset.folder == "/" ? dataset.folder : dataset.folder + "/";
  if (!path.starts_with(root)) refuse("a link that leads out of the folder, to " + printable(path));
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) refuse(std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse("a folder, not a file");
  if (!S_ISREG(status.st_mode)) refuse("not a regular file");
  return {.path = path,
          .stamp = {.size = status.st_size,
                    .modified_ns =
                        int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec}};
}

}  // namespace stagecraft
