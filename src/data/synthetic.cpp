#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/philox.h"

namespace chiron {

namespace {

// What a draw is for: the first word of its counter.
constexpr uint32_t kRule = 1, kText = 2;

std::array<uint32_t, 2> halves(int64_t x) {
  auto u = static_cast<uint64_t>(x);
  return {static_cast<uint32_t>(u), static_cast<uint32_t>(u >> 32)};
}

}  // namespace

SyntheticSource::SyntheticSource(const SyntheticOptions& options) : options_(options) {
  if (options.vocab_size < 8 || options.vocab_size > std::numeric_limits<int32_t>::max())
    throw ConfigError("the synthetic data set needs a vocabulary of at least 8 tokens, not {}", options.vocab_size);
  if (options.num_tokens < 1)
    throw ConfigError("the synthetic data set needs at least 1 token, not {}", options.num_tokens);
}

std::string SyntheticSource::name() const { return "the synthetic data set"; }

void SyntheticSource::document(int64_t number, std::span<int32_t, kDocument> out) const {
  auto seed = halves(options_.seed), doc = halves(number);
  auto words = static_cast<uint32_t>(options_.vocab_size - 2);
  auto pick = [](uint32_t random, uint32_t n) { return static_cast<uint32_t>(uint64_t{random} * n >> 32); };
  auto stream = philox({kText, 0, 0, 0}, halves(options_.stream));
  auto draw = [&](uint32_t i) {
    return philox({kText, doc[0], doc[1], i}, {seed[0] ^ stream[0], seed[1] ^ stream[1]});
  };
  out[0] = static_cast<int32_t>(words);
  out[kWords + 1] = static_cast<int32_t>(words + 1);
  uint32_t before = 0, word = pick(draw(0)[0], words);
  for (uint32_t i = 0;; ++i) {
    out[1 + i] = out[kWords + 2 + i] = static_cast<int32_t>(word);
    if (i + 1 == kWords) break;
    uint32_t first = pick(philox({kRule, word, before & 1, 0}, seed)[0], words);
    uint32_t eighth = draw(i + 1)[0] >> 29;
    uint32_t choice = eighth < 4 ? 0 : eighth < 6 ? 1 : eighth - 4;
    before = word;
    word = (first + choice) % words;
  }
}

void SyntheticSource::read(int64_t begin, std::span<int32_t> out) const {
  CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= num_tokens());
  std::array<int32_t, kDocument> words;
  while (!out.empty()) {
    document(begin / kDocument, words);
    int64_t offset = begin % kDocument, n = std::min(kDocument - offset, static_cast<int64_t>(out.size()));
    std::copy_n(words.begin() + offset, n, out.begin());
    out = out.subspan(static_cast<size_t>(n));
    begin += n;
  }
}

int64_t SyntheticSource::next_document(int64_t token) const {
  return std::min((token / kDocument + 1) * kDocument, num_tokens());
}

double SyntheticSource::entropy() const {
  double first = std::log(static_cast<double>(options_.vocab_size - 2));
  double next = 1.75 * std::numbers::ln2;  // of the odds 4:2:1:1
  return (first + (kWords - 1) * next) / kDocument;
}

}  // namespace chiron
