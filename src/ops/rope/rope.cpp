#include "ops/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/simd.h"
#include "ops/rope/rope_gpu.h"

namespace chiron {
namespace {

constexpr int64_t kElementGrain = 1 << 14;
constexpr int64_t kPairs = 64;  // pairs whose cosines are held at once, for all heads of a token

using F64 = simd::Vec<double>;

/// {cos, sin} to 1e-15 for |angle| < 10^6, growing with |angle| beyond: the remainder of angle / (pi/2) by a quotient
/// times pi/2 in two parts (Cody & Waite), then the Taylor series, whose next term is below 1e-16 on |r| <= pi/4.
std::pair<F64, F64> cos_sin(F64 angle) {
  constexpr double kHalfPiHigh = 0x1.921fb544p+0, kHalfPiLow = 0x1.0b4611a626331p-34;
  // Adding 1.5 * 2^52 rounds to the nearest integer, which the low bits of the sum then hold.
  constexpr double kRound = 0x1.8p52;
  F64 sum = angle * (2 / std::numbers::pi) + kRound;
  F64 n = sum - kRound;
  simd::Vec<int64_t> quadrant;
  std::memcpy(&quadrant, &sum, sizeof quadrant);
  F64 r = (angle - n * kHalfPiHigh) - n * kHalfPiLow;
  F64 z = r * r;
  F64 s = simd::splat(-1.0 / 1307674368000.0), c = simd::splat(1.0 / 20922789888000.0);
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = s * z * r + r;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  c = c * z + 1.0;
  auto odd = (quadrant & 1) != 0;
  F64 cosine = odd ? s : c, sine = odd ? c : s;
  return {((quadrant + 1) & 2) != 0 ? -cosine : cosine, (quadrant & 2) != 0 ? -sine : sine};
}

}  // namespace

void rope(Stream& s, Rows x, View positions, View inv_freq, int64_t heads, bool inverse) {
  const int64_t half = inv_freq.numel();
  CHECK(heads > 0 && half > 0 && x.cols == heads * 2 * half && positions.numel() == x.rows &&
            positions.dtype == DType::i32 && inv_freq.dtype == DType::f32,
        "rope of ({}, {}) {} with {} heads, {} frequencies, {} positions", x.rows, x.cols, name_of(x.dtype), heads,
        half, positions.numel());
  OpScope op(s, "rope", {x}, {x, positions, inv_freq}, 3.0 * static_cast<double>(x.rows * x.cols));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::rope(s, x, positions, inv_freq, heads, inverse);
  by_float(x.dtype, [&]<class T>() {
    using A = Acc<T>;
    T* px = x.data<T>();
    const int32_t* pp = positions.data<int32_t>();
    const float* pf = inv_freq.data<float>();
    const int64_t ld = x.ld;
    const double sign = inverse ? -1 : 1;
    s.parallel(x.rows, std::max<int64_t>(1, kElementGrain / x.cols), [=](int64_t begin, int64_t end) {
      alignas(64) A cosines[kPairs], sines[kPairs];
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t first = 0; first < half; first += kPairs) {
          const int64_t pairs = std::min(kPairs, half - first);
          simd::for_each_vector(pairs, [&](int64_t i, auto n) {
            // The angle of a late position needs more digits than a float has.
            F64 freq = __builtin_convertvector(simd::load(pf + first + i, n), F64);
            auto [c, sn] = cos_sin(freq * static_cast<double>(pp[t]));
            simd::store(cosines + i, __builtin_convertvector(c, simd::Vec<A>));
            simd::store(sines + i, __builtin_convertvector(sn * sign, simd::Vec<A>));
          });
          for (int64_t h = 0; h < heads; ++h) {
            T *low = px + t * ld + h * 2 * half + first, *high = low + half;
            simd::for_each_vector(pairs, [&](int64_t i, auto n) {
              auto a = simd::load(low + i, n), b = simd::load(high + i, n);
              auto c = simd::load(cosines + i), sn = simd::load(sines + i);
              simd::store(low + i, a * c - b * sn, n);
              simd::store(high + i, b * c + a * sn, n);
            });
          }
        }
      }
    });
  });
}

void rope_frequencies(Tensor out, float theta, const RopeScaling& scaling) {
  CHECK(out.dtype == DType::f32 && theta > 0);
  CHECK(scaling.factor > 0, "rope scaling factor {}", scaling.factor);
  CHECK(scaling.type != RopeScaling::llama3 || (scaling.original_max_seq_len > 0 && scaling.low_freq_factor > 0 &&
                                                scaling.high_freq_factor > scaling.low_freq_factor),
        "llama3 rope scaling from {} tokens, factors {} to {}", scaling.original_max_seq_len, scaling.low_freq_factor,
        scaling.high_freq_factor);
  const int64_t half = out.numel();
  for (int64_t i = 0; i < half; ++i) {
    double f = std::pow(static_cast<double>(theta), -static_cast<double>(i) / static_cast<double>(half));
    const double factor = static_cast<double>(scaling.factor);
    if (scaling.type == RopeScaling::linear) {
      f /= factor;
    } else if (scaling.type == RopeScaling::llama3) {
      const double low = static_cast<double>(scaling.low_freq_factor),
                   high = static_cast<double>(scaling.high_freq_factor);
      // How often the wave turns within the original context; below `low` stretched, above `high` kept.
      double turns = static_cast<double>(scaling.original_max_seq_len) * f / (2 * std::numbers::pi);
      double keep = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      f = (1 - keep) * f / factor + keep * f;
    }
    out.data<float>()[i] = static_cast<float>(f);
  }
}

}  // namespace chiron
