#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace chiron {

/// What a token file (a shard) says of itself. The file, little-endian:
///   header, 256 bytes: magic "CHIRONTK", u32 version 1, u32 bytes per token (2: u16, 4: i32), i64 tokens, i64 bytes of
///     raw text, i64 vocabulary size, i64 documents, vocabulary hash (32 hex digits), tokenizer's name (32 bytes, zeros
///     after it), XXH3-128 of the rest of the file (high half, low half), zeros, in the last 8 bytes the low half of
///     XXH3-128 of the 248 bytes before them
///   the tokens, then zeros up to a multiple of 8
///   i64 for each document that begins in the file: its first token
struct TokenFileInfo {
  int64_t tokens = 0, text_bytes = 0, vocab_size = 0, documents = 0;
  std::string vocabulary_hash, tokenizer;
  Hash128 checksum;

  /// 2 while every id fits into 16 bits, else 4.
  int64_t token_bytes() const { return vocab_size <= 65536 ? 2 : 4; }
  /// Exact size of the file.
  int64_t file_bytes() const;
};

/// Writes a token file (in place: for folders that are still temporary) and returns what its header says; tokens,
/// documents and the checksum are filled in here. `starts` ascend.
TokenFileInfo write_token_file(const std::string& path, TokenFileInfo info, std::span<const int32_t> tokens,
                               std::span<const int64_t> starts);

/// A token file, open. The constructor checks header, size and document starts; every failure is a DataError that says
/// what was expected and found. One that is cut short later is an IoError of the read.
class TokenFile {
 public:
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const TokenFileInfo& info() const { return info_; }
  /// The first token after `token` at which a document begins; info().tokens if none does.
  int64_t next_start(int64_t token) const;
  /// Tokens begin .. begin + out.size() - 1 of this file. Throws DataError for an id outside the vocabulary.
  void read(int64_t begin, std::span<int32_t> out) const;
  /// Reads the whole file and compares its checksum; throws DataError if a bit has changed.
  void verify() const;

 private:
  static constexpr int64_t kBlock = 512;
  using Block = std::array<int64_t, kBlock>;
  /// The document starts number block * kBlock and on, at most kBlock of them, in `memory`.
  std::span<const int64_t> read_starts(int64_t block, Block& memory) const;

  FileReader file_;
  TokenFileInfo info_;
  std::vector<int64_t> block_starts_;  // the first start of each block: all would be many
};

}  // namespace chiron
