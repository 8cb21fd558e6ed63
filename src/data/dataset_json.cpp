#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_file.h"
#include "data/token_set.h"

namespace chiron {

namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kFormat = "chiron tokens";
constexpr int kVersion = 1;

Hash128 read_hash(const JsonObject& json, std::string_view key) {
  const std::string text = json.text(key);
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    json.wrong(key, "32 lower-case hexadecimal digits");
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
  json["end_of_text"] = info.end_of_text ? Json(*info.end_of_text) : Json();
  json["tokens"] = info.tokens();
  json["text_bytes"] = info.text_bytes();
  json["documents"] = info.documents();
  json["shards"] = std::move(shards);
  return json.dump(2) + "\n";
}

DatasetInfo read_dataset_json(const std::string& text, const std::string& path) {
  const JsonObject root(parse_json(text, path), path);
  if (root.text("format") != kFormat) root.wrong("format", kFormat);
  if (root.count("version") != kVersion) root.wrong("version", fmt::format("{}", kVersion));
  DatasetInfo info;
  info.tokenizer = root.text("tokenizer");
  info.vocabulary_hash = root.text("vocabulary_hash");
  read_hash(root, "vocabulary_hash");
  info.vocab_size = root.count("vocab_size");
  if (root.has("end_of_text")) {
    const int64_t id = root.count("end_of_text");
    if (id >= info.vocab_size || id > INT32_MAX) root.wrong("end_of_text", "null or a token of the vocabulary");
    info.end_of_text = static_cast<int32_t>(id);
  }
  for (const JsonObject& shard : root.objects("shards")) {
    ShardEntry s;
    s.file = shard.text("file");
    if (s.file.empty() || s.file.find('/') != std::string::npos) shard.wrong("file", "a name without '/'");
    s.info = {shard.count("tokens"),       shard.count("text_bytes"), info.vocab_size,
              shard.count("documents"),    info.vocabulary_hash,      info.tokenizer,
              read_hash(shard, "checksum")};
    info.shards.push_back(std::move(s));
  }
  return info;
}

}  // namespace chiron
