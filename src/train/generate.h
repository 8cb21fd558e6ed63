#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "train/saved_model.h"

namespace chiron {

struct Sampling {
  double temperature = 0.8;  ///< 0: always the most likely token
  int64_t top_k = 0;         ///< 0: all
  double top_p = 1;          ///< the smallest set of tokens with at least this probability (Holtzman et al., 2020)
  uint64_t seed = 1;
};

/// The token that is drawn from logits, number `draw` of the sequence: a pure function of its arguments. Ties go to the
/// lower id.
int32_t sample(std::span<const float> logits, const Sampling& sampling, int64_t draw);

/// Continues `prompt` (at least one id; DataError for an id that the model does not have) by up to `max_tokens` tokens,
/// each handed to `on_token` as it comes; ends early when that returns false. Keys and values of earlier tokens are
/// kept; when the model's context is full, the later half of it is read anew.
void generate(Stream& s, const SavedModel& m, std::span<const int32_t> prompt, const Sampling& sampling,
              int64_t max_tokens, const std::function<bool(int32_t)>& on_token);

}  // namespace chiron
