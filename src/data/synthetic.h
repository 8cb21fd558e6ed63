#pragma once

#include "data/token_source.h"

namespace chiron {

struct SyntheticOptions {
  int64_t vocab_size = 256;  ///< at least 8
  int64_t num_tokens = int64_t{1} << 24;
  int64_t seed = 0;    ///< the language: which token follows which
  int64_t stream = 0;  ///< what is said in it: 0 for training, another for validation
};

/// Text of a made-up language that needs no corpus and can be learnt: documents of 32 tokens
///   open, w0 .. w14, copy, w0 .. w14
/// where open and copy are the two last ids of the vocabulary, w0 is any other, and each further w is one of four
/// successors, with the odds 4:2:1:1, of the word before it and of whether the one before that was even. A bigram table
/// learns half of the first run, attention to the word before the last the rest of it, and a look back to the same word
/// after `open` all of the second run. Every token is a pure function of its position.
class SyntheticSource final : public TokenSource {
 public:
  static constexpr int64_t kDocument = 32, kWords = 15;

  /// Throws ConfigError if an option is out of range.
  explicit SyntheticSource(const SyntheticOptions& options);

  std::string name() const override;
  int64_t num_tokens() const override { return options_.num_tokens; }
  int64_t vocab_size() const override { return options_.vocab_size; }
  int64_t text_bytes() const override { return 0; }
  void read(int64_t begin, std::span<int32_t> out) const override;
  int64_t next_document(int64_t token) const override;

  /// Nats per token that remain when everything is learnt: the lowest loss possible, on average over whole documents.
  double entropy() const;

 private:
  void document(int64_t number, std::span<int32_t, kDocument> out) const;

  SyntheticOptions options_;
};

}  // namespace chiron
