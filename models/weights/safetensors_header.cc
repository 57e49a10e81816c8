#include "models/weights/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/base/strict_json.h"

namespace stagecraft {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr size_t kMaxName = 1024;
constexpr size_t kMaxDimensions = 32;
constexpr size_t kMaxMetadata = 10'000;
constexpr std::string_view kMetadata = "__metadata__";

struct FormatDType {
  std::string_view name;
  int bits;
  std::optional<DType> held;
};
constexpr std::array kDTypes = {
    FormatDType{"F32", 32, DType::kF32},     FormatDType{"F16", 16, DType::kF16},
    FormatDType{"BF16", 16, DType::kBF16},   FormatDType{"I64", 64, DType::kI64},
    FormatDType{"U8", 8, DType::kU8},        FormatDType{"BOOL", 8, std::nullopt},
    FormatDType{"I8", 8, std::nullopt},      FormatDType{"F8_E4M3", 8, std::nullopt},
    FormatDType{"F8_E5M2", 8, std::nullopt}, FormatDType{"F8_E8M0", 8, std::nullopt},
    FormatDType{"F4", 4, std::nullopt},      FormatDType{"F6_E2M3", 6, std::nullopt},
    FormatDType{"F6_E3M2", 6, std::nullopt}, FormatDType{"I16", 16, std::nullopt},
    FormatDType{"U16", 16, std::nullopt},    FormatDType{"I32", 32, std::nullopt},
    FormatDType{"U32", 32, std::nullopt},    FormatDType{"F64", 64, std::nullopt},
    FormatDType{"U64", 64, std::nullopt},    FormatDType{"C64", 64, std::nullopt},
};

const FormatDType* find_dtype(std::string_view name) {
  const auto* found =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& d) { return d.name == name; });
  return found == kDTypes.end() ? nullptr : found;
}

const FormatDType& dtype_of(DType held) {
  const auto* found =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& d) { return d.held == held; });
  check(found != kDTypes.end(), "dtype without a safetensors name");
  return *found;
}

// Names go into messages and may be turned into file names by someone else.
bool acceptable_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || name.front() == '/') return false;
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  }
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    if (name.substr(at, end - at) == "..") return false;
    at = end + 1;
  }
  return true;
}

int64_t bytes_of(const std::vector<int64_t>& shape, int bits) {
  int64_t elements = 1, total = 0;
  // A zero makes the product zero only if nothing before or behind it overflows.
  int64_t nonzero = 1;
  for (const int64_t d : shape) {
    if (d < 0 || (d > 0 && __builtin_mul_overflow(nonzero, d, &nonzero))) return -1;
    elements = d == 0 ? 0 : elements * d;
  }
  if (__builtin_mul_overflow(elements, bits, &total) || total % 8 != 0) return -1;
  return total / 8;
}

// A state machine over parser events: the grammar is so small that depth is bounded by it, and
// unlike a document tree it sees duplicate keys.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  SafetensorsHeader header;
  std::string fault;  // empty when the text is fine

  bool null() override { return refuse("a null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse("the number " + printable(text));
  }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool number_integer(number_integer_t value) override {
    return refuse(fmt::format("the number {}", value));  // only negative ones come here
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::kShape && state_ != State::kOffsets) {
      return refuse(fmt::format("the number {}", value));
    }
    if (value > static_cast<uint64_t>(kMaxBytes)) {
      return fail(fmt::format("tensor '{}': the number {} is too large", printable(name_), value));
    }
    auto& list = state_ == State::kShape ? entry_.shape : offsets_;
    if (list.size() == kMaxDimensions) {
      return fail(fmt::format("tensor '{}': a list of more than {} numbers", printable(name_),
                              kMaxDimensions));
    }
    list.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      if (header.metadata.size() == kMaxMetadata) {
        return fail(fmt::format("more than {} entries of metadata", kMaxMetadata));
      }
      header.metadata[key_] = value;
      return true;
    }
    if (state_ != State::kTensor || key_ != "dtype") return refuse("a string");
    entry_.dtype = value;
    return true;
  }
  bool start_object(std::size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTop:
        state_ = name_ == kMetadata ? State::kMetadata : State::kTensor;
        entry_ = {};
        offsets_.clear();
        keys_.clear();
        return true;
      default:
        return refuse("an object");
    }
  }
  bool key(string_t& value) override {
    if (state_ == State::kTop) {
      name_ = value;
      if (name_ == kMetadata) {
        return std::exchange(metadata_seen_, true) ? fail("'__metadata__' occurs twice") : true;
      }
      if (!acceptable_name(name_)) {
        return fail(fmt::format("the tensor name '{}' ({} bytes) is not acceptable",
                                printable(name_), name_.size()));
      }
      if (header.tensors.contains(name_)) {
        return fail(fmt::format("tensor '{}' occurs twice", printable(name_)));
      }
      return true;
    }
    key_ = value;
    const bool known =
        state_ == State::kMetadata || key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
    if (!known) {
      return fail(fmt::format("tensor '{}': unknown key '{}'", printable(name_), printable(key_)));
    }
    if (!keys_.emplace(key_, true).second) {
      return fail(fmt::format("'{}': key '{}' occurs twice", printable(name_), printable(key_)));
    }
    return true;
  }
  bool end_object() override {
    if (state_ == State::kTop) {
      state_ = State::kEnd;
      return true;
    }
    const bool tensor = state_ == State::kTensor;
    state_ = State::kTop;
    return !tensor || finish_tensor();
  }
  bool start_array(std::size_t) override {
    if (state_ != State::kTensor || key_ == "dtype") return refuse("a list");
    state_ = key_ == "shape" ? State::kShape : State::kOffsets;
    return true;
  }
  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The library's message ends in what it found; its own position counts from the header.
    std::string what = error.what();
    const size_t colon = what.find("syntax error");
    what = printable(colon == std::string::npos ? what : what.substr(colon));
    return fail(fmt::format("byte {}: the header is not JSON: {}", position + 7, what));
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool fail(std::string what) {
    fault = std::move(what);
    return false;
  }
  bool refuse(const std::string& what) {
    if (state_ == State::kStart || state_ == State::kEnd) {
      return fail(fmt::format("the header is {}, not an object", what));
    }
    return fail(fmt::format("'{}': {} where none is allowed", printable(name_), what));
  }
  bool finish_tensor() {
    if (!keys_.contains("dtype") || !keys_.contains("shape") || offsets_.size() != 2) {
      return fail(
          fmt::format("tensor '{}': needs dtype, shape and two data_offsets", printable(name_)));
    }
    const FormatDType* dtype = find_dtype(entry_.dtype);
    if (dtype == nullptr) {
      return fail(fmt::format("tensor '{}': unknown dtype '{}'", printable(name_),
                              printable(entry_.dtype)));
    }
    entry_.held = dtype->held;
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    const int64_t bytes = bytes_of(entry_.shape, dtype->bits);
    if (bytes < 0) {
      return fail(fmt::format("tensor '{}': shape [{}] is too large", printable(name_),
                              fmt::join(entry_.shape, ", ")));
    }
    if (entry_.end < entry_.begin || entry_.end - entry_.begin != bytes) {
      return fail(fmt::format("tensor '{}': data_offsets [{}, {}], but {} [{}] has {} bytes",
                              printable(name_), entry_.begin, entry_.end, entry_.dtype,
                              fmt::join(entry_.shape, ", "), bytes));
    }
    header.tensors.emplace(name_, std::move(entry_));
    return true;
  }

  State state_ = State::kStart;
  bool metadata_seen_ = false;
  std::string name_, key_;
  SafetensorsHeader::Entry entry_;
  std::vector<int64_t> offsets_;
  std::map<std::string, bool> keys_;
};

// Sorted by their offsets the tensors must follow each other without holes and end with the file.
std::string coverage_fault(const SafetensorsHeader& header, int64_t data_bytes) {
  std::vector<std::pair<const std::string*, const SafetensorsHeader::Entry*>> order;
  for (const auto& [name, entry] : header.tensors) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  int64_t end = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin != end) {
      return fmt::format("tensor '{}': begins at data byte {}, but the one before it ends at {}",
                         printable(*name), entry->begin, end);
    }
    end = entry->end;
  }
  if (end == data_bytes) return {};
  return fmt::format("{} bytes of data, but the header describes {}", data_bytes, end);
}

}  // namespace

int64_t TensorInfo::bytes() const {
  const int64_t bytes = bytes_of(shape, dtype_of(dtype).bits);
  check(bytes >= 0, "tensor size overflows");
  return bytes;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                           const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw InputError(ExitCode::kNoCheckpoint, fmt::format("{}: {}", where, what));
  };
  if (text.empty() || text.front() != '{') fail("byte 8: the header does not begin with '{'");
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail(fmt::format("byte {}: NUL in the header", nul + 8));
  }
  HeaderHandler handler;
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &handler);
  if (!parsed) fail(handler.fault.empty() ? "the header cannot be parsed" : handler.fault);
  if (const std::string fault = coverage_fault(handler.header, data_bytes); !fault.empty()) {
    fail(fault);
  }
  return std::move(handler.header);
}

std::string make_safetensors_header(const std::vector<TensorInfo>& tensors,
                                    const std::map<std::string, std::string>& metadata,
                                    std::map<std::string, int64_t>& offsets) {
  std::vector<const TensorInfo*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
    const int bits_a = dtype_of(a->dtype).bits, bits_b = dtype_of(b->dtype).bits;
    return bits_a != bits_b ? bits_a > bits_b : a->name < b->name;
  });
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[std::string(kMetadata)] = metadata;
  offsets.clear();
  int64_t at = 0;
  for (const TensorInfo* tensor : order) {
    const FormatDType& dtype = dtype_of(tensor->dtype);
    const int64_t bytes = bytes_of(tensor->shape, dtype.bits);
    check(acceptable_name(tensor->name) && tensor->name != kMetadata && bytes >= 0,
          "tensor with an unacceptable name or shape");
    check(offsets.emplace(tensor->name, at).second, "two tensors of one name");
    json[tensor->name] = {
        {"dtype", dtype.name}, {"shape", tensor->shape}, {"data_offsets", {at, at + bytes}}};
    check(!__builtin_add_overflow(at, bytes, &at) && at < kMaxBytes, "tensors too large");
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception& error) {
    throw InternalError(fmt::format("safetensors header: {}", error.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check(static_cast<int64_t>(text.size()) <= kMaxSafetensorsHeader, "safetensors header too long");
  for (auto& [name, offset] : offsets) offset += 8 + static_cast<int64_t>(text.size());
  std::string length;
  for (int i = 0; i < 8; ++i) {
    length.push_back(static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i)));
  }
  return length + text;
}

}  // namespace stagecraft
