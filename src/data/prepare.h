#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace chiron {

struct PrepareOptions {
  /// Text files, each a document, and folders, which stand for all files below them in the order of their paths
  /// (hidden ones and data sets left out; links to folders are followed, each folder is read once).
  std::vector<std::string> inputs;
  std::string out;                          ///< the folder to make
  std::string tokenizer;                    ///< "byte", or the path of a tokenizer.json; empty: byte
  int64_t train_bpe = 0;                    ///< > 0: instead, train a BPE with so many tokens on the training part
  double validation = 0;                    ///< [0, 1): the last part of the text, by bytes, goes into a set of its own
  std::string document_separator;           ///< not empty: cuts each file into documents; itself left out
  int64_t shard_tokens = int64_t{1} << 25;  ///< tokens per file; as many are held in memory
  bool overwrite = false;                   ///< replace a data set that is there
};

struct PrepareReport {
  struct Part {
    std::string folder;
    int64_t tokens = 0, text_bytes = 0, documents = 0, shards = 0;
    double bytes_per_token() const {
      return tokens ? static_cast<double>(text_bytes) / static_cast<double>(tokens) : 0;
    }
  };
  Part train;  ///< everything where no validation set was asked for
  std::optional<Part> validation;
  std::string tokenizer;
  int64_t vocab_size = 0;                ///< with train_bpe fewer than asked for if the text has no more pairs to join
  int64_t files = 0;                     ///< that were read
  int64_t empty_files = 0;               ///< that were passed over in folders
  std::vector<std::string> passed_over;  ///< "PATH: reason", what else was in folders
};

/// Turns text into a data set: `out`/dataset.json with its shards, or two such folders, `out`/train and
/// `out`/validation. Each document is followed by the end-of-text token where the tokenizer has one. All or nothing:
/// `out` appears when it is complete. Text is read in pieces, whatever its size. Only one process at a time makes a
/// set. Throws DataError that names the input or folder, ConfigError that names the option, IoError.
PrepareReport prepare(const PrepareOptions& options);

}  // namespace chiron
