#pragma once

#include <memory>
#include <vector>

#include "data/token_source.h"

namespace chiron {

/// Several sources, one after the other. They share a vocabulary.
class JoinedSource final : public TokenSource {
 public:
  explicit JoinedSource(std::vector<std::shared_ptr<const TokenSource>> parts);

  std::string name() const override;
  int64_t num_tokens() const override { return begins_.back(); }
  int64_t vocab_size() const override { return parts_.front()->vocab_size(); }
  int64_t text_bytes() const override;
  std::string fingerprint() const override;
  void read(int64_t begin, std::span<int32_t> out) const override;
  int64_t next_document(int64_t token) const override;

 private:
  /// The part that holds a token.
  size_t part_of(int64_t token) const;

  std::vector<std::shared_ptr<const TokenSource>> parts_;
  std::vector<int64_t> begins_;  // first token of each part, then the number of tokens
};

}  // namespace chiron
