#include "text/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json_file.h"
#include "text/byte_chars.h"
#include "text/utf8.h"

namespace chiron {

namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else {  // the byte characters end at U+0143
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

std::string to_chars(std::string_view bytes) {
  std::string chars;
  for (char c : bytes) append_utf8(chars, kByteToChar[static_cast<uint8_t>(c)]);
  return chars;
}

/// The bytes that a token of the file stands for; nothing if a character is none of the 256.
std::optional<std::string> to_bytes(std::string_view chars) {
  static constexpr auto kCharToByte = [] {
    std::array<int16_t, 0x144> table{};
    table.fill(-1);
    for (size_t b = 0; b < 256; ++b) table[kByteToChar[b]] = static_cast<int16_t>(b);
    return table;
  }();
  std::string bytes;
  for (size_t at = 0; at < chars.size();) {
    CodePoint c = utf8_at(chars, at);
    if (c.code >= kCharToByte.size() || kCharToByte[c.code] < 0) return {};
    bytes += static_cast<char>(kCharToByte[c.code]);
    at += c.bytes;
  }
  return bytes;
}

/// Reads one file; every refusal names the file, the key and what was found there.
class Reader {
 public:
  Reader(const std::string& text, const std::string& path) : path_(path), root_(parse_json(text, path)) {
    if (!root_.is_object()) refuse("a JSON object was expected, found {}", root_.type_name());
  }

  BpeModel read() {
    check_surroundings();
    const Json& model = object(root_, "model");
    check_model(model);
    read_added();
    read_vocab(object(model, "vocab"));
    read_merges(model);
    return std::move(model_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw DataError("{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  /// The value of a key; null where it is absent.
  static const Json& at(const Json& parent, const char* key) {
    static const Json kNull;
    auto it = parent.find(key);
    return it == parent.end() ? kNull : *it;
  }
  const Json& object(const Json& parent, const char* key) const {
    const Json& value = at(parent, key);
    if (!value.is_object()) refuse("'{}' must be an object, found {}", key, value.type_name());
    return value;
  }
  static std::string brief(const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() > 80 ? text.substr(0, complete_utf8(text.substr(0, 80))) + "..." : text;
  }
  /// `value` must be an object of this type; returns false for null where that is allowed.
  bool expect_type(const Json& value, const char* what, std::string_view type, bool or_null) const {
    if (value.is_null() && or_null) return false;
    const Json& found = value.is_object() ? at(value, "type") : value;
    if (!found.is_string() || found.get_ref<const std::string&>() != type)
      refuse("{} {} is not supported, only {}{}", what, brief(found), type, or_null ? " or none" : "");
    return true;
  }
  void expect_flag(const Json& parent, const char* what, const char* key, bool wanted, bool if_absent) const {
    const Json& value = at(parent, key);
    if (value.is_null() ? if_absent != wanted : value != Json(wanted))
      refuse("{} with {} {} is not supported, only {}", what, key, value.is_null() ? "absent" : brief(value), wanted);
  }
  void expect_empty(const Json& parent, const char* what, const char* key) const {
    const Json& value = at(parent, key);
    if (!value.is_null() && value != "") refuse("{} {} is not supported: {}", what, key, brief(value));
  }

  void check_surroundings() const {
    expect_empty(root_, "the option", "truncation");
    expect_empty(root_, "the option", "padding");
    const Json& normalizer = at(root_, "normalizer");
    if (!normalizer.is_null()) refuse("normalizer {} is not supported, only none", brief(at(normalizer, "type")));
    const Json& pre = at(root_, "pre_tokenizer");
    expect_type(pre, "pre-tokenizer", "ByteLevel", false);
    expect_flag(pre, "pre-tokenizer ByteLevel", "add_prefix_space", false, true);
    expect_flag(pre, "pre-tokenizer ByteLevel", "use_regex", true, true);
    expect_type(at(root_, "post_processor"), "post-processor", "ByteLevel", true);
    expect_type(at(root_, "decoder"), "decoder", "ByteLevel", false);
  }

  void check_model(const Json& model) const {
    expect_type(model, "model", "BPE", false);
    expect_empty(model, "BPE", "dropout");
    expect_empty(model, "BPE", "continuing_subword_prefix");
    expect_empty(model, "BPE", "end_of_word_suffix");
    expect_flag(model, "BPE", "byte_fallback", false, false);
    expect_flag(model, "BPE", "ignore_merges", false, false);
  }

  void read_added() {
    const Json& list = at(root_, "added_tokens");
    if (list.is_null()) return;
    if (!list.is_array()) refuse("'added_tokens' must be a list, found {}", list.type_name());
    for (const Json& entry : list) {
      if (!entry.is_object() || !at(entry, "id").is_number_integer() || !at(entry, "content").is_string())
        refuse("an added token needs an integer id and a content, found {}", brief(entry));
      auto content = entry["content"].get<std::string>();
      std::string what = fmt::format("added token {}", brief(entry["content"]));
      if (content.empty()) refuse("an added token is empty: {}", brief(entry));
      for (const char* flag : {"single_word", "lstrip", "rstrip"}) expect_flag(entry, what.c_str(), flag, false, false);
      expect_flag(entry, what.c_str(), "normalized", false, false);
      auto id = entry["id"].get<int64_t>();
      if (!added_.emplace(content, id).second) refuse("{} is listed twice", what);
      place(id, content, content);
      model_.added.push_back(static_cast<int32_t>(id));
    }
  }

  /// Enters a token under its id, once.
  void place(int64_t id, const std::string& chars, std::string bytes) {
    if (id < 0 || id >= kMostTokens) refuse("token {}: id {} is not in 0 to {}", brief(chars), id, kMostTokens - 1);
    auto i = static_cast<size_t>(id);
    if (i >= model_.tokens.size()) {
      model_.tokens.resize(i + 1);
      known_.resize(i + 1);
    }
    if (known_[i]) refuse("tokens {} and {} share the id {}", brief(to_chars(model_.tokens[i])), brief(chars), id);
    known_[i] = true;
    model_.tokens[i] = std::move(bytes);
  }

  void read_vocab(const Json& vocab) {
    for (const auto& [chars, value] : vocab.items()) {
      if (!value.is_number_integer()) refuse("vocab: token {} has no integer id but {}", brief(chars), brief(value));
      auto id = value.get<int64_t>();
      if (auto it = added_.find(chars); it != added_.end()) {
        if (it->second != id)
          refuse("token {} has the id {} in added_tokens and {} in vocab", brief(chars), it->second, id);
        ids_.emplace(chars, static_cast<int32_t>(id));
        continue;
      }
      auto bytes = to_bytes(chars);
      if (!bytes || bytes->empty()) refuse("vocab: token {} is no sequence of byte-level characters", brief(chars));
      place(id, chars, std::move(*bytes));
      ids_.emplace(chars, static_cast<int32_t>(id));
    }
    auto hole = std::find(known_.begin(), known_.end(), false);
    if (hole != known_.end())
      refuse("no token has the id {}, though ids go up to {}", hole - known_.begin(), known_.size() - 1);
    for (size_t b = 0; b < 256; ++b) {
      std::string chars;
      append_utf8(chars, kByteToChar[b]);
      if (!ids_.contains(chars) || added_.contains(chars))
        refuse("vocab: no token for the byte {} ({}): byte-level BPE needs all 256", b, brief(chars));
    }
  }

  void read_merges(const Json& model) {
    const Json& merges = at(model, "merges");
    if (!merges.is_array()) refuse("'merges' must be a list, found {}", merges.type_name());
    std::set<std::pair<int32_t, int32_t>> seen;
    size_t line = 0;
    for (const Json& entry : merges) {
      ++line;
      std::string left, right;
      if (entry.is_string()) {
        const auto& text = entry.get_ref<const std::string&>();
        if (text.starts_with("#version")) continue;
        size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
          refuse("merge {}: two tokens with one space between them were expected, found {}", line, brief(entry));
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
        left = entry[0];
        right = entry[1];
      } else {
        refuse("merge {}: a pair of tokens was expected, found {}", line, brief(entry));
      }
      BpeMerge merge{id_of(left, line), id_of(right, line), id_of(left + right, line)};
      if (!seen.emplace(merge.left, merge.right).second) refuse("merge {} {} is listed twice", line, brief(entry));
      model_.merges.push_back(merge);
    }
  }

  int32_t id_of(const std::string& chars, size_t line) const {
    auto it = ids_.find(chars);
    if (it == ids_.end()) refuse("merge {}: token {} is not in vocab", line, brief(chars));
    return it->second;
  }

  static constexpr int64_t kMostTokens = 1 << 24;

  const std::string& path_;
  Json root_;
  BpeModel model_;
  std::vector<bool> known_;  // by id
  std::unordered_map<std::string, int64_t> added_;
  std::unordered_map<std::string, int32_t> ids_;  // of the vocab's spelling
};

}  // namespace

BpeModel read_tokenizer_json(const std::string& text, const std::string& path) { return Reader(text, path).read(); }

std::string write_tokenizer_json(const BpeModel& model) {
  OrderedJson added = OrderedJson::array(), vocab = OrderedJson::object(), merges = OrderedJson::array();
  std::vector<bool> is_added(model.tokens.size());
  for (int32_t id : model.added) {
    is_added[static_cast<size_t>(id)] = true;
    added.push_back({{"id", id},
                     {"content", model.tokens[static_cast<size_t>(id)]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  auto chars_of = [&](int32_t id) {
    const std::string& token = model.tokens[static_cast<size_t>(id)];
    return is_added[static_cast<size_t>(id)] ? token : to_chars(token);
  };
  auto& entries = vocab.get_ref<OrderedJson::object_t&>();
  for (size_t id = 0; id < model.tokens.size(); ++id)  // past ordered_json's linear search for the key
    entries.emplace_back(chars_of(static_cast<int32_t>(id)), id);
  for (const BpeMerge& m : model.merges) merges.push_back({chars_of(m.left), chars_of(m.right)});

  OrderedJson byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  OrderedJson root;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = std::move(added);
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = byte_level;
  root["post_processor"] = nullptr;
  root["decoder"] = byte_level;
  root["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false}};
  root["model"]["vocab"] = std::move(vocab);
  root["model"]["merges"] = std::move(merges);
  return root.dump(1) + "\n";
}

}  // namespace chiron
