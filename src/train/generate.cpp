#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "train/inference.h"

namespace chiron {

int32_t sample(std::span<const float> logits, const Sampling& sampling, int64_t draw) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  size_t kept = order.size();
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < kept) {
    kept = static_cast<size_t>(sampling.top_k);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), likelier);
  } else if (sampling.top_p < 1) {
    std::sort(order.begin(), order.end(), likelier);
  }
  std::vector<double> weights(kept);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double x = static_cast<double>(logits[static_cast<size_t>(order[i])]) - static_cast<double>(*best);
    total += weights[i] = std::exp(x / sampling.temperature);
  }
  if (sampling.top_p < 1) {
    double sum = 0;
    size_t n = 0;
    while (n < kept && sum < sampling.top_p * total) sum += weights[n++];
    kept = std::max<size_t>(n, 1);
    total = sum;
  }
  const auto words = philox({static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32), 0, 0},
                            {static_cast<uint32_t>(sampling.seed), static_cast<uint32_t>(sampling.seed >> 32)});
  double left = static_cast<double>(words[0]) * 0x1p-32 * total;
  for (size_t i = 0; i + 1 < kept; ++i)
    if ((left -= weights[i]) < 0) return order[i];
  return order[kept - 1];
}

void generate(Stream& s, const SavedModel& m, std::span<const int32_t> prompt, const Sampling& sampling,
              int64_t max_tokens, const std::function<bool(int32_t)>& on_token) {
  const ModelConfig& config = m.model->config();
  if (prompt.empty()) throw DataError("the prompt has no tokens");
  for (int32_t id : prompt)
    if (id < 0 || id >= config.vocab_size)
      throw DataError("token {} of the prompt is not in the model's vocabulary of {}", id, config.vocab_size);
  // No larger a cache than will be filled: long contexts are large.
  const int64_t longest = config.max_seq_len, given = std::ssize(prompt);
  const int64_t context = max_tokens < longest - given ? given + max_tokens : longest;
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  // What the cache does not hold yet.
  std::vector<int32_t> fresh(text.end() - std::min<std::ptrdiff_t>(std::ssize(text), context), text.end());
  Inference inference(s, m, DType::f32, context);
  for (int64_t n = 0; n < max_tokens; ++n) {
    if (inference.length() + std::ssize(fresh) > context) {
      inference.clear();
      fresh.assign(text.end() - std::max<int64_t>(1, context / 2), text.end());
    }
    auto logits = inference.logits(fresh, Inference::Rows::last);
    for (float x : logits)
      if (!std::isfinite(x)) throw DataError("{}: the model's logits are not finite", m.dir);
    const int32_t next = sample(logits, sampling, n);
    text.push_back(next);
    fresh.assign(1, next);
    if (!on_token(next)) return;
  }
}

}  // namespace chiron
