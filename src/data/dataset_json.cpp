#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/token_set.h"

namespace chiron {

namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kFormat = "chiron tokens";
constexpr int kVersion = 1;

/// A value of dataset.json, with where it stands.
class Field {
 public:
  Field(const Json& json, std::string path, std::string key)
      : json_(json), path_(std::move(path)), key_(std::move(key)) {}

  Field at(const char* key) const {
    if (!json_.is_object() || !json_.contains(key)) throw DataError("{}: no '{}'", path_, name(key));
    return {json_[key], path_, name(key)};
  }
  int64_t count() const {
    if (!json_.is_number_integer() || json_.get<int64_t>() < 0) wrong("a number, 0 or more");
    return json_.get<int64_t>();
  }
  std::string text() const {
    if (!json_.is_string()) wrong("a text");
    return json_.get<std::string>();
  }
  const Json& list() const {
    if (!json_.is_array()) wrong("a list");
    return json_;
  }
  bool null() const { return json_.is_null(); }
  [[noreturn]] void wrong(const char* wanted) const {
    throw DataError("{}: '{}' is {}, expected {}", path_, key_, json_.dump(), wanted);
  }

 private:
  std::string name(const char* key) const { return key_.empty() ? key : key_ + "." + key; }

  const Json& json_;
  std::string path_, key_;
};

Hash128 parse_hash(const Field& field) {
  std::string text = field.text();
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    field.wrong("32 lower-case hexadecimal digits");
  return {std::stoull(text.substr(0, 16), nullptr, 16), std::stoull(text.substr(16), nullptr, 16)};
}

}  // namespace

std::string write_dataset_json(const DatasetInfo& info) {
  Json shards = Json::array();
  for (const ShardEntry& s : info.shards)
    shards.push_back({{"file", s.file},
                      {"tokens", s.info.tokens},
                      {"text_bytes", s.info.text_bytes},
                      {"documents", s.info.documents},
                      {"file_bytes", s.info.file_bytes()},
                      {"checksum", s.info.checksum.hex()}});
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["tokenizer"] = info.tokenizer;
  json["vocabulary_hash"] = info.vocabulary_hash;
  json["vocab_size"] = info.vocab_size;
  if (info.end_of_text)
    json["end_of_text"] = *info.end_of_text;
  else
    json["end_of_text"] = nullptr;
  json["tokens"] = info.tokens();
  json["text_bytes"] = info.text_bytes();
  json["documents"] = info.documents();
  json["shards"] = std::move(shards);
  return json.dump(2) + "\n";
}

DatasetInfo read_dataset_json(const std::string& text, const std::string& path) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& e) {
    throw DataError("{}: not JSON: the error is at byte {} of {}", path, e.byte, text.size());
  }
  Field root(json, path, "");
  if (root.at("format").text() != kFormat) root.at("format").wrong(kFormat);
  if (root.at("version").count() != kVersion) root.at("version").wrong("1");
  DatasetInfo info;
  info.tokenizer = root.at("tokenizer").text();
  info.vocabulary_hash = root.at("vocabulary_hash").text();
  parse_hash(root.at("vocabulary_hash"));
  info.vocab_size = root.at("vocab_size").count();
  if (!root.at("end_of_text").null()) info.end_of_text = static_cast<int32_t>(root.at("end_of_text").count());
  size_t i = 0;
  for (const Json& entry : root.at("shards").list()) {
    Field shard(entry, path, fmt::format("shards[{}]", i++));
    ShardEntry s;
    s.file = shard.at("file").text();
    if (s.file.empty() || s.file.find('/') != std::string::npos) shard.at("file").wrong("a name without '/'");
    s.info = {shard.at("tokens").count(),      shard.at("text_bytes").count(), info.vocab_size,
              shard.at("documents").count(),   info.vocabulary_hash,           info.tokenizer,
              parse_hash(shard.at("checksum"))};
    info.shards.push_back(std::move(s));
  }
  return info;
}

}  // namespace chiron
