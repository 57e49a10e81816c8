#include "models/text/vocabulary_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/strict_json.h"

namespace stagecraft {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxFile = int64_t{6} << 20;  // bytes; CLIP's tokenizer.json has 3.6 MiB
constexpr int64_t kMaxId = int64_t{1} << 24;

constexpr ExitCode kInvalid = ExitCode::kPlanMismatch;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw InputError(kInvalid, fmt::format("{}: {}", where, what));
}

Json read_json(const std::string& path) {
  return parse_strict_json(read_file(path, kMaxFile, kInvalid), path, kInvalid);
}

std::map<std::string, int64_t> token_ids(const Json& json, const std::string& path) {
  if (!json.is_object()) fail(path, "the vocabulary is not an object of tokens and ids");
  std::map<std::string, int64_t> ids;
  std::set<int64_t> seen;
  for (const auto& [token, value] : json.items()) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(kMaxId)) {
      fail(path,
           fmt::format("the id of '{}' is not a whole number up to {}", printable(token), kMaxId));
    }
    const auto id = value.get<int64_t>();
    if (!seen.insert(id).second) {
      fail(path, fmt::format("the id {} of '{}' occurs twice", id, printable(token)));
    }
    ids.emplace(token, id);
  }
  return ids;
}

std::pair<std::string, std::string> split_merge(std::string_view line, const std::string& where) {
  const size_t space = line.find(' ');
  const bool two = space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                   line.find(' ', space + 1) == std::string_view::npos;
  if (!two) fail(where, fmt::format("'{}' is not two words", printable(line)));
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

// Every merge makes a token of its own.
void add_merge(std::pair<std::string, std::string> merge, const std::string& where,
               VocabularyFiles& files) {
  if (files.vocabulary.merges.size() == files.vocabulary.ids.size()) {
    fail(where, fmt::format("more merges than the {} tokens of the vocabulary",
                            files.vocabulary.ids.size()));
  }
  files.vocabulary.merges.push_back(std::move(merge));
}

void read_merges_text(const std::string& path, VocabularyFiles& files) {
  const std::string text = read_file(path, kMaxFile, kInvalid);
  auto lines = std::make_shared<std::vector<size_t>>();  // of each merge
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    add_merge(split_merge(line, where), where, files);
    lines->push_back(number);
  }
  // Byte-level: 256 symbols, the same at a word's end, and begin and end of text need no merge;
  // every other token does.
  constexpr size_t kTokensWithoutMerge = 514;
  const size_t merges = files.vocabulary.merges.size(), tokens = files.vocabulary.ids.size();
  if (merges + kTokensWithoutMerge < tokens) {
    fail(path, fmt::format("holds {} merges, the vocabulary of {} tokens needs {}", merges, tokens,
                           tokens - kTokensWithoutMerge));
  }
  files.merges_path = path;
  files.merge_place = [path, lines](size_t i) { return fmt::format("{}:{}", path, lines->at(i)); };
}

void read_tokenizer_json(const std::string& path, VocabularyFiles& files) {
  const Json json = read_json(path);
  const auto model = json.is_object() ? json.find("model") : json.end();
  if (model == json.end() || !model->is_object() || model->value("type", Json()) != "BPE" ||
      model->value("end_of_word_suffix", Json()) != "</w>") {
    fail(path, "is not a CLIP tokenizer: a BPE model with the suffix </w> is expected");
  }
  files.vocabulary.ids = token_ids(model->value("vocab", Json()), path);
  const Json merges = model->value("merges", Json());
  if (!merges.is_array()) fail(path, "has no list of merges");
  files.merges_path = path;
  files.merge_place = [path](size_t i) { return fmt::format("{}: merge {}", path, i); };
  // Older files hold "a b", newer ones ["a", "b"].
  for (const Json& merge : merges) {
    const std::string where = files.merge_place(files.vocabulary.merges.size());
    if (merge.is_string()) {
      add_merge(split_merge(merge.get_ref<const std::string&>(), where), where, files);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      add_merge({merge[0], merge[1]}, where, files);
    } else {
      fail(where, "is not two words");
    }
  }
}

}  // namespace

VocabularyFiles read_vocabulary(const std::string& folder) {
  namespace fs = std::filesystem;
  VocabularyFiles files;
  files.path = folder + "/vocab.json";
  const std::string merges = folder + "/merges.txt", single = folder + "/tokenizer.json";
  std::error_code ignored;
  const bool pair = fs::exists(files.path, ignored) && fs::exists(merges, ignored);
  if (!pair && !fs::exists(single, ignored)) {
    throw InputError(ExitCode::kIo,
                     fmt::format("{}: holds neither vocab.json with merges.txt nor tokenizer.json; "
                                 "tools/make_clip_vocab.py makes them",
                                 folder));
  }
  if (pair) {
    files.vocabulary.ids = token_ids(read_json(files.path), files.path);
    read_merges_text(merges, files);
  } else {
    files.path = single;
    read_tokenizer_json(single, files);
  }
  return files;
}

}  // namespace stagecraft
