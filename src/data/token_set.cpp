#include "data/token_set.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace chiron {

int64_t DatasetInfo::sum(int64_t TokenFileInfo::*what) const {
  int64_t n = 0;
  for (const ShardEntry& s : shards) n += s.info.*what;
  return n;
}

bool is_dataset(const std::string& folder) { return file_exists(folder + "/dataset.json"); }

std::string hidden_beside(const std::string& folder, std::string_view purpose) {
  const std::string name = folder.substr(0, folder.find_last_not_of('/') + 1);
  return fmt::format("{}/.{}.{}", parent_directory(name), name.substr(name.rfind('/') + 1), purpose);
}

TokenSet::TokenSet(const std::string& path) : path_(path), folder_(path) {
  if (directory_exists(path)) {
    if (!is_dataset(path)) {
      bool split = is_dataset(path + "/train");
      throw DataError("{}: no data set: there is no dataset.json in this folder{}", path,
                      split ? fmt::format("; did you mean {0}/train or {0}/validation?", path)
                            : "; `chiron prepare` makes one of text");
    }
    std::string json = path + "/dataset.json";
    info_ = read_dataset_json(read_file(json), json);
  } else if (file_exists(path)) {
    folder_ = parent_directory(path);
    TokenFileInfo file = TokenFile(path).info();
    info_ = {file.tokenizer, file.vocabulary_hash, file.vocab_size, {}, {{path.substr(path.rfind('/') + 1), file}}};
  } else {
    if (const std::string old = set_aside(path); directory_exists(old))
      throw DataError("{}: no such folder; the set that was there is {}: rename it back, or prepare again", path, old);
    throw DataError("{}: no such folder or file; `chiron prepare` makes a data set of text", path);
  }
  begins_.push_back(0);
  for (const ShardEntry& entry : info_.shards) {
    std::string file = folder_ + "/" + entry.file;
    if (!file_exists(file)) throw DataError("{}: missing, though {}/dataset.json lists it", file, path);
    const TokenFile& shard = shards_.emplace_back(file);
    const TokenFileInfo& found = shard.info();
    auto expect = [&](const char* what, const auto& there, const auto& wanted) {
      if (there != wanted) throw DataError("{}: {} {}, but {}/dataset.json says {}", file, what, there, path, wanted);
    };
    expect("tokens", found.tokens, entry.info.tokens);
    expect("bytes of text", found.text_bytes, entry.info.text_bytes);
    expect("documents", found.documents, entry.info.documents);
    expect("vocabulary size", found.vocab_size, info_.vocab_size);
    expect("vocabulary hash", found.vocabulary_hash, info_.vocabulary_hash);
    expect("tokenizer", found.tokenizer, info_.tokenizer);
    expect("checksum", found.checksum.hex(), entry.info.checksum.hex());
    begins_.push_back(begins_.back() + found.tokens);
  }
}

size_t TokenSet::shard_of(int64_t token) const {
  auto it = std::upper_bound(begins_.begin(), begins_.end(), token);
  return static_cast<size_t>(it - begins_.begin()) - 1;
}

std::string TokenSet::fingerprint() const {
  std::string all;
  for (const ShardEntry& shard : info_.shards) all += shard.info.checksum.hex();
  return hash128(all).hex();
}

void TokenSet::read(int64_t begin, std::span<int32_t> out) const {
  CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= num_tokens());
  for (size_t s = out.empty() ? 0 : shard_of(begin); !out.empty(); ++s) {
    int64_t n = std::min(static_cast<int64_t>(out.size()), begins_[s + 1] - begin);
    shards_[s].read(begin - begins_[s], out.first(static_cast<size_t>(n)));
    out = out.subspan(static_cast<size_t>(n));
    begin += n;
  }
}

int64_t TokenSet::next_document(int64_t token) const {
  CHECK(token >= 0 && token < num_tokens());
  for (size_t s = shard_of(token); s < shards_.size(); ++s) {
    const int64_t start = shards_[s].next_start(token - begins_[s]);
    if (start < shards_[s].info().tokens) return begins_[s] + start;
  }
  return num_tokens();
}

std::unique_ptr<Tokenizer> TokenSet::tokenizer() const {
  auto opened = open_tokenizer(info_.tokenizer == "byte" ? "byte" : folder_ + "/tokenizer.json");
  if (opened->hash() != info_.vocabulary_hash)
    throw DataError("{}/tokenizer.json: another vocabulary (hash {}) than the one that made {} (hash {})", folder_,
                    opened->hash(), path_, info_.vocabulary_hash);
  return opened;
}

void TokenSet::verify() const {
  for (const TokenFile& shard : shards_) shard.verify();
}

}  // namespace chiron
