#pragma once

#include "gpu/gpu.h"

/// Memory in pieces of 16 bytes, arithmetic in float.
namespace chiron::gpu {

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int kVec = 16 / static_cast<int>(sizeof(T));

/// As many elements of T, widened.
template <class T>
struct Floats {
  float x[kVec<T>];
  __device__ float& operator[](int i) { return x[i]; }
  __device__ float operator[](int i) const { return x[i]; }
};

template <class T>
__device__ inline Floats<T> unpack(const Bits16& b) {
  Floats<T> v;
  for (int i = 0; i < kVec<T>; ++i) {
    if constexpr (sizeof(T) == 4) {
      v[i] = std::bit_cast<float>(b.word[i]);
    } else {
      T y;
      y.bits = static_cast<uint16_t>(b.word[i / 2] >> (16 * (i % 2)));
      v[i] = to_float(y);
    }
  }
  return v;
}

template <class T>
__device__ inline Bits16 pack(const Floats<T>& v) {
  Bits16 b;
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4)
      b.word[i] = std::bit_cast<uint32_t>(v[i]);
    else
      b.word[i] = pack2<T>(v[2 * i], v[2 * i + 1]);
  }
  return b;
}

__device__ inline bool is_aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// The first n (up to kVec) elements at p, the others `fill`. One access where all are asked for and p is aligned.
template <class T>
__device__ inline Floats<T> load(const T* p, int64_t n, float fill = 0) {
  if (n >= kVec<T> && is_aligned16(p)) return unpack<T>(load16(p));
  Floats<T> v;
  for (int i = 0; i < kVec<T>; ++i) v[i] = i < n ? to_float(p[i]) : fill;
  return v;
}

/// Rounds and stores the first n (up to kVec) elements.
template <class T>
__device__ inline void store(T* p, const Floats<T>& v, int64_t n) {
  if (n >= kVec<T> && is_aligned16(p)) return store16(p, pack<T>(v));
  for (int i = 0; i < kVec<T>; ++i)
    if (i < n) p[i] = from_float<T>(v[i]);
}

}  // namespace chiron::gpu
