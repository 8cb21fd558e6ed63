#pragma once

#include <memory>

#include "base/log.h"
#include "data/token_source.h"
#include "text/tokenizer.h"
#include "train/options.h"

namespace chiron {

/// What a run reads.
struct Sources {
  std::shared_ptr<const TokenSource> train;
  std::shared_ptr<const TokenSource> validation;  ///< absent: none
  std::shared_ptr<const Tokenizer> tokenizer;     ///< absent: synthetic data

  /// Empty for synthetic data.
  std::string vocabulary_hash() const { return tokenizer ? tokenizer->hash() : ""; }
};

/// Token sets, joined, and their tokenizer.
struct TokenSets {
  std::shared_ptr<const TokenSource> source;
  std::shared_ptr<const Tokenizer> tokenizer;
};

/// DataError if a set cannot be used, or two differ in vocabulary, or a checksum does not fit. `verify`: sets of more
/// bytes than that are not compared with their checksums, since all of them would have to be read; the log says so.
TokenSets open_token_sets(const std::vector<std::string>& folders, int64_t verify, Log& log);

/// The vocabulary of the run's data; 0 if the data is not there (yet).
int64_t data_vocabulary(const Options& options);

/// Opens data.train and data.validation, or the synthetic set. ConfigError if neither is named, DataError if a set
/// cannot be used, or two sets differ in vocabulary.
Sources open_sources(const Options& options, Log& log);

}  // namespace chiron
