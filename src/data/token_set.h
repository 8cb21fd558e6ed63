#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_file.h"
#include "data/token_source.h"
#include "text/tokenizer.h"

namespace chiron {

/// One shard of a data set, as dataset.json lists it.
struct ShardEntry {
  std::string file;  ///< name within the folder
  TokenFileInfo info;
};

/// What dataset.json says.
struct DatasetInfo {
  std::string tokenizer;        ///< "byte" or "bpe"
  std::string vocabulary_hash;  ///< of the tokenizer that made the tokens
  int64_t vocab_size = 0;
  std::optional<int32_t> end_of_text;
  std::vector<ShardEntry> shards;

  int64_t tokens() const { return sum(&TokenFileInfo::tokens); }
  int64_t text_bytes() const { return sum(&TokenFileInfo::text_bytes); }
  int64_t documents() const { return sum(&TokenFileInfo::documents); }

 private:
  int64_t sum(int64_t TokenFileInfo::*what) const;
};

std::string write_dataset_json(const DatasetInfo& info);
/// `path` is for messages. Throws DataError that names the key.
DatasetInfo read_dataset_json(const std::string& text, const std::string& path);

/// Whether a folder holds a data set (a dataset.json).
bool is_dataset(const std::string& folder);
/// A hidden name beside a folder.
std::string hidden_beside(const std::string& folder, std::string_view purpose);
/// Where `prepare` keeps a set while another one takes its place, on file systems that cannot exchange the two.
inline std::string set_aside(const std::string& folder) { return hidden_beside(folder, "chiron-old"); }

/// A data set: its shards, one after the other, are one sequence of tokens.
class TokenSet final : public TokenSource {
 public:
  /// A folder that `prepare` made, or a single token file. Throws DataError that names the file and what is wrong with
  /// it: missing, truncated, not a token file, not what dataset.json says.
  explicit TokenSet(const std::string& path);

  std::string name() const override { return path_; }
  int64_t num_tokens() const override { return begins_.back(); }
  int64_t vocab_size() const override { return info_.vocab_size; }
  int64_t text_bytes() const override { return info_.text_bytes(); }
  std::string fingerprint() const override;
  void read(int64_t begin, std::span<int32_t> out) const override;
  int64_t next_document(int64_t token) const override;

  const DatasetInfo& info() const { return info_; }
  /// Opens the tokenizer that made the tokens; throws DataError if it is missing or another one.
  std::unique_ptr<Tokenizer> tokenizer() const;
  /// Compares the checksums of all shards.
  void verify() const;

 private:
  /// The shard that holds a token.
  size_t shard_of(int64_t token) const;

  std::string path_, folder_;
  DatasetInfo info_;
  std::vector<TokenFile> shards_;
  std::vector<int64_t> begins_;  // first token of each shard, then the number of tokens
};

}  // namespace chiron
