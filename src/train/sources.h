#pragma once

#include <memory>

#include "data/token_source.h"
#include "text/tokenizer.h"
#include "train/options.h"

namespace chiron {

/// What a run reads.
struct Sources {
  std::shared_ptr<const TokenSource> train;
  std::shared_ptr<const TokenSource> validation;  ///< absent: none
  std::shared_ptr<const Tokenizer> tokenizer;     ///< absent: synthetic data
  std::string vocabulary_hash;                    ///< empty: synthetic data
};

/// Opens data.train and data.validation, or the synthetic set. ConfigError if neither is named, DataError if a set
/// cannot be used, or two sets differ in vocabulary.
Sources open_sources(const Options& options);

}  // namespace chiron
