#include "text/bpe.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "text/split.h"
#include "text/tokenizer_json.h"
#include "text/unicode_ranges.h"
#include "text/utf8.h"

namespace chiron {

namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }

}  // namespace

/// One call of encode(): scratch memory, and where in the output each piece met so far already stands.
class Bpe::Encoding {
 public:
  Encoding(const Bpe& bpe, std::vector<int32_t>& ids) : bpe_(bpe), ids_(ids) {}

  void text(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      size_t end = gpt2_piece_end(text, at);
      piece(text.substr(at, end - at));
      at = end;
    }
  }

 private:
  struct Range {
    size_t begin, count;
  };
  struct Node {
    int32_t id;  // kDead: merged into its left neighbour
    uint32_t previous, next;
  };
  struct Candidate {
    uint32_t rank, at;
    int32_t left, right, result;
    // The heap's top is the largest: lowest rank, then leftmost.
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  static constexpr int32_t kDead = -1;
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr size_t kLongestKept = 64, kMostKept = 1 << 18;

  void piece(std::string_view piece) {
    if (piece.size() == 1) {
      ids_.push_back(bpe_.byte_ids_[static_cast<uint8_t>(piece[0])]);
      return;
    }
    bool keep = piece.size() <= kLongestKept;
    if (keep) {
      if (auto it = seen_.find(piece); it != seen_.end()) {
        auto [begin, count] = it->second;
        for (size_t i = begin; i < begin + count; ++i) ids_.push_back(ids_[i]);
        return;
      }
    }
    size_t begin = ids_.size();
    merge(piece);
    if (keep && seen_.size() < kMostKept) seen_.emplace(piece, Range{begin, ids_.size() - begin});
  }

  void merge(std::string_view piece) {
    if (piece.size() >= kNone) throw DataError("a piece of text without a break is over 4 GiB: it cannot be encoded");
    auto n = static_cast<uint32_t>(piece.size());
    nodes_.resize(n);
    for (uint32_t i = 0; i < n; ++i)
      nodes_[i] = {bpe_.byte_ids_[static_cast<uint8_t>(piece[i])], i ? i - 1 : kNone, i + 1 < n ? i + 1 : kNone};
    heap_.clear();
    for (uint32_t i = 0; i + 1 < n; ++i) consider(i);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      Candidate c = heap_.back();
      heap_.pop_back();
      Node& left = nodes_[c.at];
      if (left.id != c.left || left.next == kNone || nodes_[left.next].id != c.right) continue;
      left.id = c.result;
      nodes_[left.next].id = kDead;
      left.next = nodes_[left.next].next;
      if (left.next != kNone) nodes_[left.next].previous = c.at;
      if (left.previous != kNone) consider(left.previous);
      consider(c.at);
    }
    for (uint32_t i = 0; i != kNone; i = nodes_[i].next) ids_.push_back(nodes_[i].id);
  }

  void consider(uint32_t at) {
    const Node& node = nodes_[at];
    if (node.next == kNone) return;
    int32_t right = nodes_[node.next].id;
    auto it = bpe_.merges_.find(pair_key(node.id, right));
    if (it == bpe_.merges_.end()) return;
    heap_.push_back({it->second.rank, at, node.id, right, it->second.result});
    std::push_heap(heap_.begin(), heap_.end());
  }

  const Bpe& bpe_;
  std::vector<int32_t>& ids_;
  std::unordered_map<std::string_view, Range> seen_;
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

Bpe::Bpe(BpeModel model) : model_(std::move(model)) {
  byte_ids_.fill(-1);
  std::vector<bool> added(model_.tokens.size());
  for (int32_t id : model_.added) {
    const std::string& token = model_.tokens[static_cast<size_t>(id)];
    CHECK(!token.empty());
    added[static_cast<size_t>(id)] = true;
    added_starts_[static_cast<uint8_t>(token[0])] = true;
    added_has_space_ |= std::any_of(token.begin(), token.end(), is_ascii_space);
    if (token == kEndOfText) end_of_text_ = id;
  }
  for (size_t id = 0; id < model_.tokens.size(); ++id)
    if (const std::string& token = model_.tokens[id]; token.size() == 1 && !added[id])
      byte_ids_[static_cast<uint8_t>(token[0])] = static_cast<int32_t>(id);
  CHECK(std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end(), "a byte has no token");
  merges_.reserve(model_.merges.size());
  uint32_t rank = 0;
  for (const BpeMerge& m : model_.merges) merges_.emplace(pair_key(m.left, m.right), Ranked{rank++, m.result});
}

std::string_view Bpe::bytes_of(int32_t id) const {
  if (id < 0 || id >= vocab_size())
    throw DataError("token id {} is outside the vocabulary: its ids are 0 to {}", id, vocab_size() - 1);
  return model_.tokens[static_cast<size_t>(id)];
}

std::optional<Bpe::Found> Bpe::find_added(std::string_view text, size_t from) const {
  if (model_.added.empty()) return {};
  for (size_t at = from; at < text.size(); ++at) {
    if (!added_starts_[static_cast<uint8_t>(text[at])]) continue;
    int32_t best = -1;
    size_t longest = 0;
    for (int32_t id : model_.added) {
      const std::string& token = model_.tokens[static_cast<size_t>(id)];
      if (token.size() > longest && text.substr(at).starts_with(token)) best = id, longest = token.size();
    }
    if (best >= 0) return Found{at, best};
  }
  return {};
}

void Bpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  Encoding encoding(*this, ids);
  size_t at = 0;
  while (auto found = find_added(text, at)) {
    encoding.text(text.substr(at, found->at - at));
    ids.push_back(found->id);
    at = found->at + model_.tokens[static_cast<size_t>(found->id)].size();
  }
  encoding.text(text.substr(at));
}

size_t Bpe::safe_cut(std::string_view text) const {
  // No piece of the split pattern, and no added token, goes on from a character that is no space to one that is.
  if (added_has_space_) return 0;
  for (size_t at = text.size(); at-- > 1;)
    if (is_ascii_space(text[at]) && char_class(utf8_before(text, at).code) != CharClass::space) return at;
  return 0;
}

std::string Bpe::json() const { return write_tokenizer_json(model_); }

std::string Bpe::hash() const {
  Hasher hasher;
  auto number = [&](uint64_t n) { hasher.update(&n, sizeof n); };
  hasher.update("bpe gpt2", 8);
  number(model_.tokens.size());
  for (const std::string& token : model_.tokens) {
    number(token.size());
    hasher.update(token.data(), token.size());
  }
  number(model_.merges.size());
  for (const BpeMerge& m : model_.merges) number(pair_key(m.left, m.right));
  std::vector<int32_t> added = model_.added;
  std::sort(added.begin(), added.end());
  for (int32_t id : added) number(static_cast<uint64_t>(id));
  return hasher.digest().hex();
}

}  // namespace chiron
