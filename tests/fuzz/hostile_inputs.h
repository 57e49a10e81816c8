// Inputs that are made to cost a parser as much as it lets them.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/fuzz/plan_graph.h"

namespace stagecraft::fuzz {

struct Hostile {
  const char* target;
  const char* name;
  std::function<std::string()> make;
};

inline void PrintTo(const Hostile& hostile, std::ostream* out) {
  *out << hostile.target << ' ' << hostile.name;
}

// `head`, then `piece` (its "{}" counting from 0) as often as `bytes` allow, then `tail`.
inline std::string repeated(const std::string& head, const std::string& piece, size_t bytes,
                            const std::string& tail = "") {
  std::string text = head;
  const size_t at = piece.find("{}");
  for (size_t i = 0;; ++i) {
    std::string next = piece;
    if (at != std::string::npos) next.replace(at, 2, std::to_string(i));
    if (text.size() + next.size() + tail.size() > bytes) return text + tail;
    text += next;
  }
}

inline constexpr size_t kMiB = size_t{1} << 20;

inline constexpr size_t kYaml = 320 << 10;

// What every YAML file can be; as large as a YAML file may be.
inline void add_yaml(std::vector<Hostile>& all, const char* target) {
  const auto add = [&](const char* name, std::function<std::string()> make) {
    all.push_back({target, name, std::move(make)});
  };
  add("nested_lists", [] { return repeated("", "[", 60'000); });
  add("empty_lists", [] { return repeated("stages:\n", "- []\n", kYaml); });
  add("unknown_keys", [] { return repeated("", std::string(90, 'k') + "{}: 1\n", kYaml); });
  add("near_keys", [] { return repeated("", "modle{}: 1\n", kYaml); });
  add("long_unknown_keys",
      [] { return repeated("", "k{}" + std::string(190, 'x') + ": 1\n", kYaml); });
  add("same_key", [] { return repeated("", std::string(60'000, 'k') + ": 1\n", kYaml); });
  add("long_tags", [] { return repeated("", "- !" + std::string(60'000, 't') + " x\n", kYaml); });
  add("flow_texts", [] { return repeated("a: [", std::string(200, 'x') + ",\n", kYaml); });
  add("quoted_lines", [] { return repeated("a: \"", std::string(60, 'x') + "\n", kYaml, "\""); });
  add("plain_words", [] { return repeated("a: ", "word word word word\n  ", kYaml); });
  add("comments", [] { return repeated("", "# c\n", kYaml); });
  add("spaces", [] { return repeated("a:", "\n      ", kYaml); });
  add("block_scalar", [] { return repeated("a: |\n", " xxxxxxxxxxxxxxxxxxxxxxxxxx\n", kYaml); });
  add("nested_lists_on_lines", [] { return repeated("", "[\n", kYaml); });
  add("nested_maps", [] { return repeated("", "{a: ", 60'000); });
  add("nested_items", [] { return repeated("", "- ", 60'000); });
  add("flow_numbers", [] { return repeated("a: [\n", "1,1,1,1,1,1,1,1,\n", kYaml); });
  add("short_same_key", [] { return repeated("", "a: 1\n", kYaml); });
  add("long_line", [] { return repeated("a: ", "x", kYaml); });
  add("aliases", [] {
    return repeated("a: &a [x, x]\nb: &b [*a, *a, *a]\n", "c: [*b, *b, *b, *b]\n", kYaml);
  });
  add("anchors", [] { return repeated("", "- &a x\n", kYaml); });
  add("question_marks", [] { return repeated("", "? ", 60'000); });
  add("escaped_lines", [] { return repeated("", "\"\\\n", kYaml); });
  add("one_byte_over", [] { return std::string(kYaml + 1, '\n'); });
}

inline void add_plan(std::vector<Hostile>& all, const char* target) {
  const auto head = [](const char* schedule) {
    return fmt::format(
        "version: 1\ntrain: {{model: m, width: 64, height: 64, batch: 1024}}\ngraph_hash: {}\n"
        "cluster: c\nschedule: {}\n",
        graph_hash(plan_graph()), schedule);
  };
  const std::string stages =
      "stages:\n- {rank: 0, blocks: [time, a, b]}\n- {rank: 1, blocks: [c, d, e]}\n";
  all.push_back({target, "long_order", [=] {
                   std::string text = head("explicit") + stages + "order:\n";
                   for (int rank = 0; rank < 7; ++rank)
                     text += repeated("- \"", "F0.0 ", 65'000, "\"\n");
                   return text;
                 }});
  all.push_back({target, "order_of_no_actions", [=] {
                   std::string text = head("explicit") + stages + "order:\n";
                   for (int rank = 0; rank < 7; ++rank)
                     text += repeated("- \"", "x ", 65'000, "\"\n");
                   return text;
                 }});
  all.push_back({target, "order_of_backwards", [=] {
                   return head("explicit") + stages + "order:\n" +
                          repeated("- \"", "B0.{} ", 9'000, "\"\n") +
                          repeated("- \"", "B1.{} ", 9'000, "\"\n");
                 }});
  all.push_back({target, "unknown_blocks", [=] {
                   return repeated(head("1f1b") + "stages:\n- rank: 0\n  blocks:\n",
                                   "  - unet.bolck{}\n", kYaml);
                 }});
  all.push_back({target, "known_blocks_again", [=] {
                   return repeated(head("1f1b") + "stages:\n- rank: 0\n  blocks:\n", "  - a\n",
                                   kYaml);
                 }});
  all.push_back({target, "recompute_again",
                 [=] { return repeated(head("1f1b") + stages + "recompute:\n", "- e\n", kYaml); }});
  all.push_back({target, "messages", [=] {
                   return repeated(
                       head("1f1b") + stages + "messages:\n",
                       "- {direction: forward, from: 0, to: 1, bytes: 1, values: [0]}\n", kYaml);
                 }});
  all.push_back({target, "many_micro_batches", [=] { return head("gpipe") + stages; }});
}

inline void add_json(std::vector<Hostile>& all, const char* target, size_t bytes) {
  const auto add = [&](const char* name, std::function<std::string()> make) {
    all.push_back({target, name, std::move(make)});
  };
  add("empty_lists", [=] { return repeated("[[]", ",[]", bytes, "]"); });
  add("empty_objects", [=] { return repeated("[{}", ",{}", bytes, "]"); });
  add("objects_of_one", [=] { return repeated("[0", ",{\"\":0}", bytes, "]"); });
  add("numbers", [=] { return repeated("[0", ",1", bytes, "]"); });
  add("keys", [=] { return repeated("{\"\":0", ",\"{}\":1", bytes, "}"); });
  add("long_keys",
      [=] { return repeated("{\"\":0", ",\"" + std::string(40, 'k') + "{}\":1", bytes, "}"); });
  add("nested", [=] { return repeated("", "[", bytes); });
  add("one_text", [=] { return "\"" + std::string(bytes - 2, 'x') + "\""; });
  add("escapes", [=] { return repeated("\"", "\\ud83d\\ude00", bytes, "\""); });
  add("digits", [=] { return std::string(bytes, '7'); });
  add("real_digits", [=] { return "0." + std::string(bytes - 2, '3'); });
  add("spaces", [=] { return std::string(bytes, ' '); });
  add("one_byte_over", [=] { return std::string(bytes + 1, ' '); });
}

inline std::string length_of_header(uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(length >> (8 * i)));
  return text;
}

inline void add_safetensors(std::vector<Hostile>& all) {
  constexpr size_t kHeader = 2 * kMiB;
  const auto add = [&](const char* name, std::function<std::string()> make) {
    all.push_back({"safetensors", name, [=] {
                     const std::string header = make();
                     return length_of_header(header.size()) + header;
                   }});
  };
  add("tensors", [] {
    return repeated("{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                    ",\"{}\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,0]}", kHeader, "}");
  });
  add("empty_tensors", [] {
    return repeated("{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                    ",\"{}\":{\"dtype\":\"I64\",\"shape\":[0,1],\"data_offsets\":[0,0]}", kHeader,
                    "}");
  });
  add("unreadable_tensors", [] {
    return repeated("{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                    ",\"{}\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[0,0]}", kHeader,
                    "}");
  });
  add("metadata",
      [] { return repeated("{\"__metadata__\":{\"\":\"\"", ",\"{}\":\"\"", kHeader, "}}"); });
  add("dimensions", [] { return repeated("{\"a\":{\"shape\":[0", ",0", kHeader, "]}}"); });
  add("nested", [] { return repeated("{\"a\":", "[", kHeader); });
  add("long_name", [] { return "{\"" + std::string(kHeader - 10, 'n') + "\":{}}"; });
  add("spaces", [] { return "{}" + std::string(kHeader - 2, ' '); });
  add("one_byte_over", [] { return "{}" + std::string(kHeader - 1, ' '); });
  for (const auto& [name, length] :
       {std::pair("claims_101_mib", uint64_t{101} << 20), std::pair("claims_all", ~uint64_t{0})}) {
    all.push_back({"safetensors", name, [length] { return length_of_header(length) + "{}"; }});
  }
}

inline void add_tokenizer(std::vector<Hostile>& all) {
  constexpr size_t kFile = 6 * kMiB;
  const auto add = [&](const char* target, const char* name, std::function<std::string()> make) {
    all.push_back({target, name, std::move(make)});
  };
  const auto join = [](std::string vocabulary, const std::string& merges) {
    vocabulary.push_back('\0');
    return vocabulary + merges;
  };
  // Ids have to differ, so they are counted too.
  const auto vocabulary = [](int count) {
    std::string text = "{\"<|startoftext|>\":0,\"<|endoftext|>\":1";
    for (int i = 2; i < count; ++i) text += fmt::format(",\"t{}\":{}", i, i);
    return text + "}";
  };
  add("vocabulary", "tokens", [=] { return join(vocabulary(140'000), "t2 t3\n"); });
  add("vocabulary", "merges",
      [=] { return join(vocabulary(100'000), repeated("", "t2 t3\n", kFile)); });
  add("vocabulary", "one_byte_over", [=] { return join(std::string(kFile + 1, ' '), ""); });
  add("vocabulary", "merges_one_byte_over",
      [=] { return join(vocabulary(1000), std::string(kFile + 1, '\n')); });
  add("vocabulary", "blank_merges", [=] { return join("{}", std::string(kFile, '\n')); });
  add("vocabulary", "too_many_tokens", [=] { return join(vocabulary(370'000), ""); });
  add("vocabulary", "good_merges", [=] {
    std::string ids = "{\"<|startoftext|>\":0,\"<|endoftext|>\":1", merges;
    for (int i = 0; i < 300; ++i) ids += fmt::format(",\"l{}\":{}", i, 2 + i);
    for (int i = 0; i < 200; ++i) ids += fmt::format(",\"r{}\":{}", i, 1000 + i);
    int next = 2000;
    for (int l = 0; l < 300; ++l) {
      for (int r = 0; r < 200; ++r) {
        ids += fmt::format(",\"l{}r{}\":{}", l, r, next++);
        merges += fmt::format("l{} r{}\n", l, r);
      }
    }
    return join(ids + "}", merges);
  });
  add("tokenizer_json", "merges", [=] {
    return repeated("{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":" +
                        vocabulary(60'000) + ",\"merges\":[\"t2 t3\"",
                    ",\"t2 t3\"", kFile, "]}}");
  });
  add("caption", "one_word", [] { return std::string(16 << 10, 'a'); });
  add("caption", "merging_word", [] { return repeated("", "ab", 16 << 10); });
  add("caption", "specials", [] { return repeated("", "<|endoftext|>", 16 << 10); });
  add("caption", "broken_specials", [] { return repeated("", "<|endoftext|", 16 << 10); });
  // Marks that Unicode wants in another order.
  add("caption", "marks", [] { return repeated("a", "\u0301\u0316", 16 << 10); });
  add("caption", "digits", [] { return std::string(16 << 10, '1'); });
}

inline std::vector<Hostile> hostile_inputs() {
  std::vector<Hostile> all;
  for (const char* target : {"plan", "plan_resolve", "model", "device", "cluster", "train"}) {
    add_yaml(all, target);
  }
  add_plan(all, "plan");
  add_plan(all, "plan_resolve");
  all.push_back({"cluster", "devices", [] {
                   return repeated(
                       "name: c\nlink: {bandwidth_gb_per_s: 1, latency_us: 1}\ndevices:\n",
                       "- {device: ../devices/cpu.yaml}\n", kYaml);
                 }});
  all.push_back({"cluster", "bad_device_again", [] {
                   // A device file that is the cluster file itself, with many faults.
                   return repeated(
                       repeated("name: c\ndevices:\n", "- {device: cluster.yaml}\n", kYaml / 4),
                       "key{}: x\n", kYaml);
                 }});
  add_json(all, "json", 6 * kMiB);
  add_json(all, "cost_table", 4 * kMiB);
  add_json(all, "measured", 4 * kMiB);
  add_json(all, "manifest", kMiB);
  add_json(all, "checkpoint_manifest", kMiB);
  add_json(all, "weight_index", 4 * kMiB);
  add_json(all, "tokenizer_json", 6 * kMiB);
  all.push_back({"weight_index", "names", [] {
                   return repeated("{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\"",
                                   ",\"{}\":\"model-00001-of-00002.safetensors\"", 4 * kMiB, "}}");
                 }});
  all.push_back({"weight_index", "shards", [] {
                   return repeated("{\"weight_map\":{\"\":\"x.safetensors\"",
                                   ",\"{}\":\"x{}.safetensors\"", 4 * kMiB, "}}");
                 }});
  all.push_back({"cost_table", "blocks", [] {
                   return repeated("{\"format\":\"stagecraft cost table 1\",\"blocks\":{\"\":{}",
                                   ",\"{}\":{}", 2 * kMiB, "}}");
                 }});
  add_safetensors(all);
  add_tokenizer(all);
  const auto prompt = [&](const char* name, std::function<std::string()> make) {
    all.push_back({"prompt_json", name, std::move(make)});
  };
  prompt("bad_lines", [] { return repeated("", "x\n", 16 * kMiB); });
  prompt("lists", [] {
    return repeated("", "{\"a\":" + repeated("[0", ",0", 3'000, "]") + "}\n", 16 * kMiB);
  });
  prompt("one_line", [] { return std::string(64 * kMiB, 'x'); });
  prompt("one_line_of_lists", [] { return repeated("[{}", ",{}", kMiB, "]"); });
  prompt("object_of_lists", [] { return repeated("{\"a\":[{}", ",{}", kMiB, "]}"); });
  prompt("blank_lines", [] { return std::string(16 * kMiB, '\n'); });
  prompt("binary", [] { return std::string(64 * kMiB, '\0'); });
  const auto picture = [&](const char* name, std::function<std::string()> make) {
    all.push_back({"image_header", name, std::move(make)});
  };
  picture("png_of_empty_chunks", [] {
    return repeated(std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1", 24),
                    std::string("\0\0\0\0tEXt\0\0\0\0", 12), 32 * kMiB);
  });
  picture("jpeg_of_stuffed_bytes", [] {
    return repeated(std::string("\xFF\xD8\xFF\xDA\0\2", 6), std::string("\xFF\0", 2), 32 * kMiB);
  });
  picture("jpeg_of_zeros", [] {
    return repeated(std::string("\xFF\xD8\xFF\xDA\0\2", 6), std::string(64, '\0'), 32 * kMiB);
  });
  picture("jpeg_of_fill_bytes", [] { return "\xFF\xD8" + std::string(32 * kMiB, '\xFF'); });
  picture("jpeg_of_empty_segments",
          [] { return repeated("\xFF\xD8", std::string("\xFF\xE0\0\2", 4), 32 * kMiB); });
  return all;
}

}  // namespace stagecraft::fuzz
