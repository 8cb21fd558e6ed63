#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"

/// The vector vocabulary of CPU kernels: sixteen lanes, whatever the machine has. The compiler maps them to one, two or
/// four registers; Stream::parallel instantiates each loop for three instruction sets and picks one at run time.
namespace chiron::simd {

inline constexpr int64_t kLanes = 16;

/// Sixteen elements of an arithmetic type; + - * / and comparisons are element-wise.
template <class T>
using Vec [[gnu::vector_size(16 * sizeof(T))]] = T;

using F32 = Vec<float>;
using I32 = Vec<int32_t>;

/// The number of lanes as a type: loads and stores of a whole vector choose their code when they are compiled.
using Whole = std::integral_constant<int64_t, kLanes>;

/// Calls f(i, n) for i = 0, 16, 32, ... below count: n is Whole{}, and for the last, incomplete vector an int64_t.
///   for_each_vector(count, [&](int64_t i, auto n) { store(y + i, load(x + i, n) * scale, n); });
template <class F>
inline void for_each_vector(int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i, Whole{});
  if (i < count) f(i, count - i);
}

template <class A>
inline Vec<A> splat(A x) {
  return x - Vec<A>{};
}

/// Lanes of a value as signed integers of the same width, and back. Choices between lanes are made with masks (all ones
/// or zero) from sign bits: comparisons of vectors wider than the machine's registers are done lane by lane by GCC.
template <class A>
using Bits = Vec<std::conditional_t<sizeof(A) == 8, int64_t, int32_t>>;
template <class A>
inline Bits<A> bits_of(Vec<A> v) {
  Bits<A> bits;
  std::memcpy(&bits, &v, sizeof v);
  return bits;
}
template <class A>
inline Vec<A> from_bits(Bits<A> bits) {
  Vec<A> v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
/// All ones in the lanes whose sign bit is set.
template <class A>
inline Bits<A> sign_mask(Vec<A> v) {
  return bits_of<A>(v) >> (8 * sizeof(A) - 1);
}
/// a where the mask is all ones, b where it is zero.
template <class A>
inline Vec<A> select(Bits<A> mask, Vec<A> a, Vec<A> b) {
  Bits<A> x = bits_of<A>(a), y = bits_of<A>(b);
  return from_bits<A>(y ^ ((x ^ y) & mask));
}
/// All ones where a float is NaN.
inline I32 nan_mask(F32 v) { return (0x7f800000 - (bits_of<float>(v) & 0x7fffffff)) >> 31; }

/// Loads sixteen elements of any float kind and widens them to Acc<T>.
template <class T>
inline Vec<Acc<T>> load(const T* p) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    Vec<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
  } else if constexpr (std::is_same_v<T, bf16>) {
    Vec<uint16_t> raw;
    std::memcpy(&raw, p, sizeof raw);
    Vec<uint32_t> wide = __builtin_convertvector(raw, Vec<uint32_t>) << 16;
    F32 v;
    std::memcpy(&v, &wide, sizeof v);
    return v;
  } else {
    Vec<uint16_t> raw;
    std::memcpy(&raw, p, sizeof raw);
    Vec<uint32_t> wide = __builtin_convertvector(raw, Vec<uint32_t>), mag = (wide & 0x7fffu) << 13, bits;
    // As a float's, the exponent field is 112 too small: a product mends it, for subnormals too.
    F32 v;
    std::memcpy(&v, &mag, sizeof v);
    v *= 0x1p112f;
    std::memcpy(&bits, &v, sizeof bits);
    bits = (mag >= 0x7c00u << 13 ? mag | 0x7f800000u : bits) | (wide & 0x8000u) << 16;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }
}

/// Rounds sixteen values to T and stores them: to nearest even, with the bits that T's constructor gives.
template <class T>
inline void store(T* p, Vec<Acc<T>> v) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    std::memcpy(p, &v, sizeof v);
  } else if constexpr (std::is_same_v<T, bf16>) {
    Vec<uint32_t> u;
    std::memcpy(&u, &v, sizeof u);
    Vec<uint32_t> rounded = u + 0x7fffu + ((u >> 16) & 1u), quiet = u | 0x400000u;
    auto nan = (Vec<uint32_t>)nan_mask(v);
    Vec<uint16_t> raw = __builtin_convertvector((rounded ^ ((rounded ^ quiet) & nan)) >> 16, Vec<uint16_t>);
    std::memcpy(static_cast<void*>(p), &raw, sizeof raw);
  } else {
    // f16's constructor, its branches as selections.
    Vec<uint32_t> u, small;
    std::memcpy(&u, &v, sizeof u);
    Vec<uint32_t> mag = u & 0x7fffffffu;
    F32 aligned;
    std::memcpy(&aligned, &mag, sizeof aligned);
    aligned += 0.5f;
    std::memcpy(&small, &aligned, sizeof small);
    Vec<uint32_t> half = (mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1u)) >> 13;
    half = mag < 0x38800000u ? small - 0x3f000000u : half;
    half = mag >= 0x477ff000u ? splat<uint32_t>(0x7c00u) : half;
    half = mag > 0x7f800000u ? splat<uint32_t>(0x7e00u) : half;
    Vec<uint16_t> raw = __builtin_convertvector(half | ((u >> 16) & 0x8000u), Vec<uint16_t>);
    std::memcpy(static_cast<void*>(p), &raw, sizeof raw);
  }
}

/// The first n (< 16) elements, the other lanes `fill`.
template <class T>
inline Vec<Acc<T>> load(const T* p, int64_t n, Acc<T> fill = 0) {
  Vec<Acc<T>> v = splat(fill);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<Acc<T>>(p[i]);
  return v;
}
template <class T>
inline void store(T* p, Vec<Acc<T>> v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = static_cast<T>(v[i]);
}

template <class T>
inline Vec<Acc<T>> load(const T* p, Whole, Acc<T> = 0) {
  return load(p);
}
template <class T>
inline void store(T* p, Vec<Acc<T>> v, Whole) {
  store(p, v);
}

/// The sum of the lanes, as a balanced tree: always the same order.
template <class A>
inline A sum(Vec<A> v) {
  A s[8];
  for (int i = 0; i < 8; ++i) s[i] = v[i] + v[i + 8];
  for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
  return (s[0] + s[2]) + (s[1] + s[3]);
}

/// The larger and the smaller of two numbers, lane by lane; where one is NaN, either of the two.
template <class A>
inline Vec<A> max(Vec<A> a, Vec<A> b) {
  return select<A>(sign_mask<A>(a - b), b, a);
}
template <class A>
inline Vec<A> min(Vec<A> a, Vec<A> b) {
  return select<A>(sign_mask<A>(a - b), a, b);
}
template <class A>
inline A max_of(Vec<A> v) {
  A m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

/// The correctly rounded square root of each lane.
template <class A>
inline Vec<A> sqrt(Vec<A> x) {
  A lanes[kLanes];
  std::memcpy(lanes, &x, sizeof x);
  for (A& lane : lanes) lane = std::sqrt(lane);
  std::memcpy(&x, lanes, sizeof x);
  return x;
}

/// e^x within 2 ulp for float (Cody-Waite reduction to |r| <= ln2/2, minimax polynomial of degree 6; 0 below -87.3,
/// where e^x is no normal number any more, infinity above 88.7, NaN stays NaN). std::exp for double.
template <class A>
inline Vec<A> exp(Vec<A> x) {
  if constexpr (std::is_same_v<A, double>) {
    Vec<A> y;
    for (int i = 0; i < kLanes; ++i) y[i] = std::exp(x[i]);
    return y;
  } else {
    constexpr float kHigh = 88.72284f, kLow = 87.33654f;
    // Lanes out of range compute nonsense, which is replaced at the end.
    // Adding 1.5 * 2^23 rounds to the nearest integer, which then stands in the low bits.
    constexpr float kRound = 12582912.0f;
    F32 rounded = x * 1.44269504f + kRound, n = rounded - kRound;
    F32 r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    F32 p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    // 2^n in two factors, so that n = 128 (x near 88.7) does not overflow the exponent field early.
    // Unsigned, since lanes out of range may wrap.
    Vec<uint32_t> distance = std::bit_cast<Vec<uint32_t>>(bits_of<float>(rounded)) - std::bit_cast<uint32_t>(kRound);
    I32 power = std::bit_cast<I32>(distance), half = power >> 1, rest = power - half;
    F32 y = p * from_bits<float>((half + 127) << 23) * from_bits<float>((rest + 127) << 23);
    I32 magnitude = bits_of<float>(x) & 0x7fffffff;
    I32 over = (std::bit_cast<int32_t>(kHigh) - magnitude) >> 31;
    I32 under = ((std::bit_cast<int32_t>(kLow) - magnitude) >> 31) & sign_mask<float>(x) & ~nan_mask(x);
    y = select<float>(over, x + __builtin_inff(), y);
    return from_bits<float>(bits_of<float>(y) & ~under);
  }
}

/// 1 / (1 + e^-x) within 3 ulp for float, in both tails; 0 below -88.7.
template <class A>
inline Vec<A> sigmoid(Vec<A> x) {
  return A(1) / (A(1) + exp<A>(-x));
}

/// The error function within 3 ulp for float: x + x P(x^2) below 7/8, 1 - e^Q(|x|) beyond, Q approximating log erfc;
/// P and Q are near-minimax (Chebyshev) fits with relative errors of 9e-9 and 2e-8. std::erf for double.
template <class A>
inline Vec<A> erf(Vec<A> x) {
  if constexpr (std::is_same_v<A, double>) {
    Vec<A> y;
    for (int i = 0; i < kLanes; ++i) y[i] = std::erf(x[i]);
    return y;
  } else {
    F32 s = x * x;
    F32 p = splat(-6.214585362e-4f);
    p = p * s + 5.034370663e-3f;
    p = p * s + -2.679294778e-2f;
    p = p * s + 1.12824966e-1f;
    p = p * s + -3.761255451e-1f;
    p = p * s + 1.283791581e-1f;
    F32 near = x + x * p;
    I32 sign = bits_of<float>(x) & INT32_MIN;
    F32 t = min<float>(from_bits<float>(bits_of<float>(x) ^ sign), splat(4.0f));  // erf(4) rounds to 1
    F32 q = splat(1.639207259e-6f);
    q = q * t + -4.607739684e-5f;
    q = q * t + 5.967601693e-4f;
    q = q * t + -4.758251017e-3f;
    q = q * t + 2.641360493e-2f;
    q = q * t + -1.100593529e-1f;
    q = q * t + -6.318570805e-1f;
    q = q * t + -1.130209381f;
    q = q * t + 3.126121712e-4f;
    F32 far = from_bits<float>(bits_of<float>(1.0f - exp<float>(q)) | sign);
    F32 y = select<float>(sign_mask<float>(t - 0.875f), near, far);
    return select<float>(nan_mask(x), x, y);
  }
}

}  // namespace chiron::simd
