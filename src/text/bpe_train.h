#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/bpe.h"

namespace chiron {

/// Learns a byte-level BPE: counts the pieces of the texts once, then joins the most frequent pair of neighbours again
/// and again (Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", ACL 2016, algorithm 1).
/// Of equally frequent pairs the one with the smaller ids is joined first. Memory grows with the distinct pieces.
class BpeTrainer {
 public:
  /// 256 bytes and the end-of-text token.
  static constexpr int64_t kSmallest = 257;

  /// Counts the pieces of a text. A long text may come in parts that end at a safe_cut().
  void add(std::string_view text);
  /// A vocabulary of `vocab_size` tokens, <|endoftext|> the last; fewer if no pair is left that occurs twice.
  /// Throws ConfigError if vocab_size < kSmallest.
  std::unique_ptr<Bpe> train(int64_t vocab_size) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
};

/// The same in one call.
std::unique_ptr<Bpe> train_bpe(std::span<const std::string_view> texts, int64_t vocab_size);

}  // namespace chiron
