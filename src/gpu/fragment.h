#pragma once

#include "gpu/gpu.h"

/// Products of matrix tiles by a warp, on the matrix units where the device has them for T.
namespace chiron::gpu {

/// How a warp holds a 16 x 16 tile of f32: each lane has kRows rows (slots) by 256 / kLanes / kRows columns (slots).
template <int kWidth>
struct TileLayout;

/// That of NVIDIA's mma.m16n8k16, two of them side by side.
template <>
struct TileLayout<32> {
  static constexpr int kRows = 2, kRowLanes = 4;
  __device__ static constexpr int row_slot(int i) { return i / 2 % 2; }
  __device__ static constexpr int col_slot(int i) { return i / 4 * 2 + i % 2; }
  __device__ static int row_of(int slot) { return lane() / 4 + 8 * slot; }
  __device__ static int col_of(int slot) { return lane() % 4 * 2 + slot % 2 + slot / 2 * 8; }
};

/// That of AMD's MFMA 16x16x16.
template <>
struct TileLayout<64> {
  static constexpr int kRows = 4, kRowLanes = 16;
  __device__ static constexpr int row_slot(int i) { return i; }
  __device__ static constexpr int col_slot(int) { return 0; }
  __device__ static int row_of(int slot) { return lane() / 16 * 4 + slot; }
  __device__ static int col_of(int) { return lane() % 16; }
};

/// A tile C of f32 in the registers of a warp: lanes that share a row are kRowLanes consecutive ones.
struct TileSums : TileLayout<kLanes> {
  static constexpr int kRegs = 256 / kLanes;
  struct C {
    float x[kRegs];
  };
  /// Where register i of this lane's C stands.
  __device__ static int row(int i) { return row_of(row_slot(i)); }
  __device__ static int col(int i) { return col_of(col_slot(i)); }
};

/// The instructions on 16-bit kinds, as a vendor has them or the emulator plays them. A lane's part of an operand of 16
/// x 16 is kWords pairs of elements; which ones is the vendor's layout.
namespace matrix_unit {

inline constexpr int kWords = 128 / kLanes;
struct Words {
  uint32_t x[kWords];
};

#if defined(__CUDACC__)

/// Four 8 x 8 matrices. Lane l names row l % 8 of matrix l / 8; word i of a lane becomes elements (lane / 4, lane % 4 *
/// 2) and the one to its right of matrix i, or of its transpose.
template <bool kTranspose, class T>
__device__ inline Words load_matrices(Shared<T> row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row.data()));
  Words w;
  if constexpr (kTranspose)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.x[0]), "=r"(w.x[1]), "=r"(w.x[2]), "=r"(w.x[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.x[0]), "=r"(w.x[1]), "=r"(w.x[2]), "=r"(w.x[3])
                 : "r"(at)
                 : "memory");
  return w;
}

/// mma.m16n8k16 on the left half of C, then on the right.
template <class T>
__device__ inline void mma(float (&c)[TileSums::kRegs], const Words& a, const Words& b) {
  for (int n = 0; n < 2; ++n) {
    float* d = c + 4 * n;
    if constexpr (std::is_same_v<T, bf16>)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[2 * n]), "r"(b.x[2 * n + 1]));
    else
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[2 * n]), "r"(b.x[2 * n + 1]));
  }
}

#elif defined(__HIP__)

template <bool kTranspose, class T>
__device__ Words load_matrices(Shared<T> row);  // waves of 32 lanes have no MFMA: never called

/// MFMA: lane l has A (l % 16, l / 16 * 4 + i) and B (l / 16 * 4 + i, l % 16).
template <class T>
__device__ inline void mma(float (&c)[TileSums::kRegs], const Words& a, const Words& b) {
  using Sums = float __attribute__((ext_vector_type(4)));
  using Half = std::conditional_t<std::is_same_v<T, bf16>, short, _Float16>;
  using Four = Half __attribute__((ext_vector_type(4)));
  const auto left = std::bit_cast<Four>(a), right = std::bit_cast<Four>(b);
  Sums d = {c[0], c[1], c[2], c[3]};
  if constexpr (std::is_same_v<T, bf16>)
    d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(left, right, d, 0, 0, 0);
  else
    d = __builtin_amdgcn_mfma_f32_16x16x16f16(left, right, d, 0, 0, 0);
  for (int i = 0; i < 4; ++i) c[i] = d[i];
}

#else

template <bool kTranspose, class T>
Words load_matrices(Shared<T> row) {
  (void)row[7];  // within the array, too
  const Bits16 mine = load16(&row[0]);
  const std::byte* all = emu::exchange(&mine, sizeof mine, emu::Site::current());
  Words w;
  for (int m = 0; m < 4; ++m)
    for (int h = 0; h < 2; ++h) {
      int i = lane() / 4, j = lane() % 4 * 2 + h;
      if (kTranspose) std::swap(i, j);
      const auto at = static_cast<size_t>(m * 8 + i) * emu::kExchange + static_cast<size_t>(j) * sizeof(T);
      std::memcpy(reinterpret_cast<std::byte*>(&w.x[m]) + h * 2, all + at, sizeof(T));
    }
  return w;
}

/// Each lane computes its elements of C from what the lanes have that hold their rows of A and columns of B.
template <class T>
void mma(float (&c)[TileSums::kRegs], const Words& a, const Words& b) {
  constexpr int kEach = 2 * kWords;
  float mine[2 * kEach];
  for (int i = 0; i < kEach; ++i)
    for (int half : {0, 1}) {
      T x;
      x.bits = static_cast<uint16_t>((half ? b : a).x[i / 2] >> (16 * (i % 2)));
      mine[half * kEach + i] = to_float(x);
    }
  const std::byte* all = emu::exchange(mine, sizeof mine, emu::Site::current());
  auto element = [all](int lane, int i) {
    float x;
    std::memcpy(&x, all + static_cast<size_t>(lane) * emu::kExchange + static_cast<size_t>(i) * sizeof x, sizeof x);
    return x;
  };
  for (int i = 0; i < TileSums::kRegs; ++i) {
    const int m = TileSums::row(i), n = TileSums::col(i);
    for (int k = 0; k < 16; ++k) {
      // Products of 16-bit kinds are exact in f32.
      if constexpr (kLanes == 32)
        c[i] += element(m % 8 * 4 + k % 8 / 2, (m / 8 + k / 8 * 2) * 2 + k % 2) *
                element(n % 8 * 4 + k % 8 / 2, kEach + (n / 8 * 2 + k / 8) * 2 + k % 2);
      else
        c[i] += element(k / 4 * 16 + m, k % 4) * element(k / 4 * 16 + n, kEach + k % 4);
    }
  }
}

#endif

/// Elements 0, step, 2 step and 3 step: a lane's part of an operand of MFMA.
template <class T>
__device__ inline Words load4(Shared<T> p, int step) {
  Words w;
  for (int i = 0; i < 2; ++i)
    w.x[i] = static_cast<uint32_t>(p[2 * i * step].bits) | static_cast<uint32_t>(p[(2 * i + 1) * step].bits) << 16;
  return w;
}
/// The same of four neighbours, 8-byte aligned.
template <class T>
__device__ inline Words load4(Shared<T> p) {
  (void)p[3];
  Words w;
  memcpy(&w, __builtin_assume_aligned(&p[0], 8), 8);
  return w;
}

}  // namespace matrix_unit

/// C (16 x 16, f32) += A (16 x kK) B (kK x 16). T is a 16-bit kind, multiplied by matrix units, or float, by FMAs.
/// What is loaded has rows that are 16-byte aligned: p, and ld in bytes. All lanes of the warp make the same calls.
template <class T>
struct Tile : TileSums {
  static constexpr int kM = 16, kN = 16, kK = 16;
  using A = matrix_unit::Words;
  using B = matrix_unit::Words;
  /// A left operand of 16 x 16; step(a, i) is the part of it that multiplies rows [i kK, (i + 1) kK) of the right one.
  using Wide = A;
  __device__ static const A& step(const Wide& a, int) { return a; }

  /// Element (m, k) at p[m * ld + k].
  __device__ static A load_a(Shared<T> p, int ld) {
    const int l = lane();
    if constexpr (kLanes == 32)
      return matrix_unit::load_matrices<false>(p + (l % 16 * ld + l / 16 * 8));
    else
      return matrix_unit::load4(p + (l % 16 * ld + l / 16 * 4));
  }
  /// Element (m, k) at p[k * ld + m].
  __device__ static A load_a_transposed(Shared<T> p, int ld) {
    const int l = lane();
    if constexpr (kLanes == 32)
      return matrix_unit::load_matrices<true>(p + ((l % 8 + l / 16 * 8) * ld + l / 8 % 2 * 8));
    else
      return matrix_unit::load4(p + (l / 16 * 4 * ld + l % 16), ld);
  }
  /// Element (k, n) at p[n * ld + k].
  __device__ static B load_b(Shared<T> p, int ld) {
    const int l = lane();
    if constexpr (kLanes == 32)
      return matrix_unit::load_matrices<false>(p + ((l % 8 + l / 16 * 8) * ld + l / 8 % 2 * 8));
    else
      return matrix_unit::load4(p + (l % 16 * ld + l / 16 * 4));
  }
  /// Element (k, n) at p[k * ld + n].
  __device__ static B load_b_transposed(Shared<T> p, int ld) {
    const int l = lane();
    if constexpr (kLanes == 32)
      return matrix_unit::load_matrices<true>(p + (l % 16 * ld + l / 16 * 8));
    else
      return matrix_unit::load4(p + (l / 16 * 4 * ld + l % 16), ld);
  }
  __device__ static void mma(C& c, const A& a, const B& b) { matrix_unit::mma<T>(c.x, a, b); }
  /// C rounded to T as a left operand. scratch: 16 x 16 elements of this warp, unused where registers suffice.
  __device__ static Wide as_a(const C& c, Shared<T> scratch) {
    Wide a;
    if constexpr (kLanes == 32) {
      for (int i = 0; i < 4; ++i) a.x[i] = pack2<T>(c.x[2 * i], c.x[2 * i + 1]);
    } else {
      for (int i = 0; i < kRegs; ++i) scratch[row(i) * kM + col(i)] = from_float<T>(c.x[i]);
      sync_warp();
      a = load_a(scratch, kM);
      sync_warp();
    }
    return a;
  }
};

template <>
struct Tile<float> : TileSums {
  static constexpr int kM = 16, kN = 16, kK = 4, kCols = kRegs / kRows;
  struct A {
    float x[kRows][kK];
  };
  struct B {
    float x[kCols][kK];
  };
  struct Wide {
    A part[kM / kK];
  };
  __device__ static const A& step(const Wide& a, int i) { return a.part[i]; }

  __device__ static A load_a(Shared<float> p, int ld) {
    A a;
    for (int r = 0; r < kRows; ++r) load_row(a.x[r], p + row_of(r) * ld);
    return a;
  }
  __device__ static A load_a_transposed(Shared<float> p, int ld) {
    A a;
    for (int r = 0; r < kRows; ++r)
      for (int k = 0; k < kK; ++k) a.x[r][k] = p[k * ld + row_of(r)];
    return a;
  }
  __device__ static B load_b(Shared<float> p, int ld) {
    B b;
    for (int c = 0; c < kCols; ++c) load_row(b.x[c], p + col_of(c) * ld);
    return b;
  }
  __device__ static B load_b_transposed(Shared<float> p, int ld) {
    B b;
    for (int c = 0; c < kCols; ++c)
      for (int k = 0; k < kK; ++k) b.x[c][k] = p[k * ld + col_of(c)];
    return b;
  }
  __device__ static void mma(C& c, const A& a, const B& b) {
    for (int k = 0; k < kK; ++k)
      for (int i = 0; i < kRegs; ++i) c.x[i] = fma(a.x[row_slot(i)][k], b.x[col_slot(i)][k], c.x[i]);
  }
  __device__ static Wide as_a(const C& c, Shared<float> scratch) {
    for (int i = 0; i < kRegs; ++i) scratch[row(i) * kM + col(i)] = c.x[i];
    sync_warp();
    Wide a;
    for (int s = 0; s < kM / kK; ++s) a.part[s] = load_a(scratch + s * kK, kM);
    sync_warp();
    return a;
  }

 private:
  __device__ static void load_row(float (&x)[kK], Shared<float> p) {
    (void)p[kK - 1];  // within the array, too
    const Bits16 b = load16(&p[0]);
    for (int k = 0; k < kK; ++k) x[k] = std::bit_cast<float>(b.word[k]);
  }
};

}  // namespace chiron::gpu
