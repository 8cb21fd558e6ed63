#pragma once

#include "core/stream.h"

namespace chiron {

/// Rotary position embedding (Su et al., "RoFormer", 2021, eq. 34), pairs (i, i + D/2) as Hugging Face lays them out:
///   (x_i, x_{i+D/2}) <- (x_i cos a - x_{i+D/2} sin a, x_{i+D/2} cos a + x_i sin a),  a = position * inv_freq[i]
/// in place, on `heads` heads side by side.  x: (T, heads * D) rows; positions: (T) i32; inv_freq: (D / 2) f32.
/// `inverse` rotates back: that is the backward op.
void rope(Stream& s, Rows x, View positions, View inv_freq, int64_t heads, bool inverse);

/// How frequencies are stretched for contexts longer than those trained on.
struct RopeScaling {
  enum Type : uint8_t { none, linear, llama3 } type = none;
  float factor = 1;
  float low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  int64_t original_max_seq_len = 0;                 ///< llama3
};

/// inv_freq[i] = theta^(-2i/D), scaled: linear divides by factor; llama3 keeps wavelengths below original / high,
/// divides those above original / low, and interpolates between (Llama 3.1's published rule). out: (D / 2) f32 host
/// memory.
void rope_frequencies(Tensor out, float theta, const RopeScaling& scaling);

}  // namespace chiron
