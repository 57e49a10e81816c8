// From bytes to a tree with positions. yaml-cpp's node interface accepts duplicates and aliases and
// counts from zero in octal, so only its event parser is used and every value stays text until a
// getter asks for it.
#include "partitioner/base/strict_yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/utf8.h"

namespace stagecraft {
namespace {

constexpr int64_t kMaxBytes = 320 << 10;  // a plan of four ranks has 10 KiB
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxNodes =
    40'000;  // bounds memory and time: a short text can hold a million empty lists
constexpr size_t kMaxLineBytes = 64 << 10;
constexpr size_t kMaxErrors = 100;

struct Refused {
  YamlMark mark;
  std::string message;
};

YamlMark to_mark(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

// What can be refused before the parser sees the text.
std::optional<Refused> refuse_bytes(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kMaxBytes) {
    return Refused{{}, fmt::format("{} bytes, at most {} are allowed", text.size(), kMaxBytes)};
  }
  YamlMark mark{1, 1};
  bool indentation = true;
  size_t line_start = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\n') {
      mark = {mark.line + 1, 1};
      line_start = ++i;
      indentation = true;
      continue;
    }
    if (i - line_start > kMaxLineBytes) {
      return Refused{mark, fmt::format("a line of more than {} bytes", kMaxLineBytes)};
    }
    if (c == '\t' && indentation) return Refused{mark, "a tab as indentation; use spaces"};
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t' && c != '\r') || byte == 0x7F) {
      return Refused{mark, fmt::format("control character 0x{:02x}", byte)};
    }
    const size_t length = utf8_length(text.substr(i));
    if (length == 0) return Refused{mark, "not UTF-8 text"};
    indentation = indentation && c == ' ';
    i += length;
    ++mark.column;
  }
  return std::nullopt;
}

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(YamlDocument& document, YamlNode& root) : document_(document), root_(root) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) throw Refused{to_mark(mark), "more than one document in the file"};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (wants_key()) return add_key(mark, "null");
    add(mark, YamlNode::Kind::kNull);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    document_.error(to_mark(mark), "aliases are not allowed; write the value out");
    if (wants_key()) return add_key(mark, fmt::format("alias at line {}", mark.line + 1));
    add(mark, YamlNode::Kind::kNull);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (wants_key()) return add_key(mark, value);
    YamlNode& node = add(mark, YamlNode::Kind::kScalar);
    node.text = value;
    node.quoted = tag == "!";
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    YamlNode* node;  // stays valid: only the innermost open node grows
    std::set<std::string> keys;
  };

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) document_.error(to_mark(mark), "anchors are not allowed");
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      document_.error(to_mark(mark), fmt::format("tags are not allowed: {}", excerpt(tag)));
    }
  }

  bool wants_key() const {
    if (open_.empty()) return false;
    const YamlNode& node = *open_.back().node;
    return node.kind == YamlNode::Kind::kMap && node.keys.size() == node.items.size();
  }

  void add_key(const YAML::Mark& mark, const std::string& name) {
    Open& open = open_.back();
    if (name == "<<") {
      document_.error(to_mark(mark), "merge keys are not allowed; write the keys out");
    } else if (!open.keys.insert(name).second) {
      const YamlMark first = open.node->mark_of_key(name);
      document_.error(to_mark(mark), fmt::format("key `{}` given twice, first in line {}",
                                                 excerpt(name), first.line));
    }
    open.node->keys.push_back({name, to_mark(mark)});
    count(mark);
  }

  YamlNode& add(const YAML::Mark& mark, YamlNode::Kind kind) {
    count(mark);
    YamlNode& node = open_.empty() ? root_ : open_.back().node->items.emplace_back();
    node.kind = kind;
    node.mark = to_mark(mark);
    return node;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    if (wants_key()) throw Refused{to_mark(mark), "a key must be a word, not a list or a map"};
    if (open_.size() >= kMaxDepth) {
      throw Refused{to_mark(mark), fmt::format("nested deeper than {}", kMaxDepth)};
    }
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    YamlNode& node = add(mark, kind);
    open_.push_back({&node, {}});
  }

  void count(const YAML::Mark& mark) {
    if (document_.is_full()) throw Refused{to_mark(mark), "too many errors, the rest is not read"};
    if (++nodes_ > kMaxNodes) {
      throw Refused{to_mark(mark), fmt::format("more than {} values in the file", kMaxNodes)};
    }
  }

  YamlDocument& document_;
  YamlNode& root_;
  std::vector<Open> open_;
  int documents_ = 0;
  size_t nodes_ = 0;
};

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size() && i < items.size(); ++i) {
    if (keys[i].name == key) return &items[i];
  }
  return nullptr;
}

YamlMark YamlNode::mark_of_key(std::string_view key) const {
  for (const Key& k : keys) {
    if (k.name == key) return k.mark;
  }
  return {};
}

YamlDocument YamlDocument::read(const std::string& path) {
  std::string text;
  try {
    text = read_file(path, kMaxBytes);
  } catch (const FileTooLarge&) {
    throw ConfigError(
        fmt::format("{}:1:1: larger than the {} bytes allowed for such a file", path, kMaxBytes));
  }
  return parse(text, path);
}

YamlDocument YamlDocument::parse(std::string_view text, const std::string& file) {
  YamlDocument document(file);
  try {
    if (const auto refused = refuse_bytes(text)) throw *refused;
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(document, document.root_);
    if (!parser.HandleNextDocument(builder)) throw Refused{{1, 1}, "the file is empty"};
    // A second call reaches the end, or finds another document, which the builder refuses.
    parser.HandleNextDocument(builder);
  } catch (const Refused& refused) {
    document.error(refused.mark, refused.message);
    document.throw_if_errors();
  } catch (const YAML::Exception& error) {
    document.error(to_mark(error.mark), excerpt(error.msg));
    document.throw_if_errors();
  }
  return document;
}

bool YamlDocument::is_full() const { return errors_.size() >= kMaxErrors; }

void YamlDocument::error(YamlMark mark, const std::string& message) {
  if (errors_.size() < kMaxErrors) {
    errors_.push_back({mark, message});
  } else {
    ++more_errors_;
  }
}

void YamlDocument::throw_if_errors() const {
  if (errors_.empty()) return;
  std::vector<Entry> sorted = errors_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.mark.line, a.mark.column) < std::pair(b.mark.line, b.mark.column);
  });
  std::string text;
  for (const Entry& entry : sorted) {
    if (!text.empty()) text += '\n';
    text += entry.mark.line == 0 ? fmt::format("{}: {}", file_, entry.message)
                                 : fmt::format("{}:{}:{}: {}", file_, entry.mark.line,
                                               entry.mark.column, entry.message);
  }
  if (more_errors_ > 0) text += fmt::format("\n{}: and {} more errors", file_, more_errors_);
  throw ConfigError(text);
}

}  // namespace stagecraft
