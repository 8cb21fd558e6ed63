#include "text/bpe_train.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "text/byte_chars.h"
#include "text/split.h"

namespace chiron {

namespace {

/// Longer pieces are no words but data; cut, they cost no more per byte than words do.
constexpr size_t kLongestWord = 256;
/// A pair that occurs once would be a token that is of no use anywhere else.
constexpr int64_t kLeastCount = 2;

struct Word {
  size_t begin;  // in the symbols of all words
  uint32_t size;
  int64_t count;
};

struct Pair {
  int64_t count = 0;
  std::vector<uint32_t> words;  // that held it once; some may have lost it since
};

struct Candidate {
  int64_t count;
  uint64_t key;
  // The top of the queue: largest count, then smallest ids.
  bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : key > o.key; }
};

class Learner {
 public:
  void add_word(std::string_view bytes, int64_t count, const std::array<int32_t, 256>& ids) {
    words_.push_back({symbols_.size(), static_cast<uint32_t>(bytes.size()), count});
    for (char c : bytes) symbols_.push_back(ids[static_cast<uint8_t>(c)]);
  }

  void start() {
    for (uint32_t w = 0; w < words_.size(); ++w) count_pairs(w, +1, kAny);
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  /// Takes the most frequent pair out of the queue; false if none is frequent enough.
  bool next(uint64_t& key) {
    while (!queue_.empty()) {
      Candidate top = queue_.top();
      queue_.pop();
      int64_t count = pairs_[top.key].count;
      if (count == top.count && count >= kLeastCount) {
        key = top.key;
        return true;
      }
      if (count >= kLeastCount && count < top.count) queue_.push({count, top.key});
    }
    return false;
  }

  void join(uint64_t key, int32_t result) {
    auto left = static_cast<int32_t>(key >> 32), right = static_cast<int32_t>(key & 0xFFFFFFFF);
    std::vector<uint32_t> words = std::move(pairs_[key].words);
    pairs_[key].words.clear();
    touched_.clear();
    for (uint32_t w : words) {
      Word& word = words_[w];
      int32_t* s = &symbols_[word.begin];
      bool has = false;
      for (uint32_t i = 0; i + 1 < word.size && !has; ++i) has = s[i] == left && s[i + 1] == right;
      if (!has) continue;
      count_pairs(w, -1, result);
      uint32_t n = 0;
      for (uint32_t i = 0; i < word.size; ++i) {
        bool both = i + 1 < word.size && s[i] == left && s[i + 1] == right;
        s[n++] = both ? result : s[i];
        i += both;
      }
      word.size = n;
      count_pairs(w, +1, result);
    }
    pairs_.erase(key);
    // Only pairs with the new symbol can have become more frequent; the others are corrected when they come up.
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (uint64_t k : touched_)
      if (auto it = pairs_.find(k); it != pairs_.end()) queue_.push({it->second.count, k});
  }

 private:
  static constexpr int32_t kAny = -1;

  /// Adds a word's pairs to the counts or takes them out. Pairs with the symbol `news` may be new in the word.
  void count_pairs(uint32_t w, int sign, int32_t news) {
    const Word& word = words_[w];
    const int32_t* s = &symbols_[word.begin];
    for (uint32_t i = 0; i + 1 < word.size; ++i) {
      uint64_t key = pair_key(s[i], s[i + 1]);
      Pair& pair = pairs_[key];
      pair.count += sign * word.count;
      if (news == kAny || (sign > 0 && (s[i] == news || s[i + 1] == news))) {
        if (pair.words.empty() || pair.words.back() != w) pair.words.push_back(w);
        if (news != kAny) touched_.push_back(key);
      }
    }
  }

  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<uint64_t> touched_;
};

}  // namespace

void BpeTrainer::add(std::string_view text) {
  auto count = [&](std::string_view word) {
    auto it = counts_.find(word);
    if (it == counts_.end()) it = counts_.emplace(word, 0).first;
    ++it->second;
  };
  for (size_t at = 0; at < text.size();) {
    size_t end = gpt2_piece_end(text, at);
    for (; end - at > kLongestWord; at += kLongestWord) count(text.substr(at, kLongestWord));
    count(text.substr(at, end - at));
    at = end;
  }
}

std::unique_ptr<Bpe> BpeTrainer::train(int64_t vocab_size) const {
  if (vocab_size < kSmallest)
    throw ConfigError("a BPE vocabulary of {} tokens is too small: 256 bytes and the end of text need {}", vocab_size,
                      kSmallest);
  BpeModel model;
  std::array<int32_t, 256> byte_ids{};
  std::unordered_map<std::string, int32_t> known;
  auto add_token = [&](const std::string& bytes) {
    auto [it, added] = known.emplace(bytes, static_cast<int32_t>(model.tokens.size()));
    if (added) model.tokens.push_back(bytes);
    return it->second;
  };
  for (uint8_t b : kBytesByChar) byte_ids[b] = add_token(std::string(1, static_cast<char>(b)));

  Learner learner;
  for (const auto& [word, count] : counts_)
    if (word.size() > 1) learner.add_word(word, count, byte_ids);
  learner.start();
  uint64_t key;
  while (static_cast<int64_t>(model.tokens.size()) + 1 < vocab_size && learner.next(key)) {
    auto left = static_cast<int32_t>(key >> 32), right = static_cast<int32_t>(key & 0xFFFFFFFF);
    std::string bytes = model.tokens[static_cast<size_t>(left)] + model.tokens[static_cast<size_t>(right)];
    int32_t result = add_token(bytes);
    model.merges.push_back({left, right, result});
    learner.join(key, result);
  }
  model.added.push_back(static_cast<int32_t>(model.tokens.size()));
  model.tokens.emplace_back(kEndOfText);
  return std::make_unique<Bpe>(std::move(model));
}

std::unique_ptr<Bpe> train_bpe(std::span<const std::string_view> texts, int64_t vocab_size) {
  BpeTrainer trainer;
  for (std::string_view text : texts) trainer.add(text);
  return trainer.train(vocab_size);
}

}  // namespace chiron
