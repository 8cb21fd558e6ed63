#pragma once

#include <array>
#include <string>
#include <unordered_map>

#include "text/tokenizer.h"

namespace chiron {

struct BpeMerge {
  int32_t left, right;  ///< ids of neighbours
  int32_t result;       ///< the id that takes their place
};

/// A byte-level BPE vocabulary. Every byte is a token.
struct BpeModel {
  std::vector<std::string> tokens;  ///< bytes by id
  std::vector<BpeMerge> merges;     ///< first merged first
  std::vector<int32_t> added;       ///< special tokens: found in the text before it is split, never merged
};

/// A pair of neighbours as one number.
inline uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

/// The token that ends a document.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

/// Byte-level BPE with GPT-2's split pattern.
class Bpe final : public Tokenizer {
 public:
  explicit Bpe(BpeModel model);

  std::string_view name() const override { return "bpe"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(model_.tokens.size()); }
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  std::string_view bytes_of(int32_t id) const override;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  size_t safe_cut(std::string_view text) const override;
  std::string json() const override;
  std::string hash() const override;
  using Tokenizer::encode;

 private:
  struct Found {
    size_t at;
    int32_t id;
  };
  struct Ranked {
    uint32_t rank;
    int32_t result;
  };
  class Encoding;

  /// The first added token at or after `from`, the longest if several begin there.
  std::optional<Found> find_added(std::string_view text, size_t from) const;

  BpeModel model_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<uint64_t, Ranked> merges_;  // by pair
  std::array<bool, 256> added_starts_{};         // first bytes of added tokens
  bool added_has_space_ = false;
  std::optional<int32_t> end_of_text_;
};

}  // namespace chiron
