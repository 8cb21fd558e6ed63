#pragma once

#include <algorithm>

#include "core/launch.h"
#include "core/tensor.h"
#include "gpu/reduce.h"
#include "gpu/vec.h"

/// The backward pass of RMSNorm and of LayerNorm. With n = (x - mean) * rstd and g = dy * w:
///   dx += rstd * (g - mean(g) - n * mean(g * n)),  dw = sum over rows of dy * n,  db = sum over rows of dy
/// where RMSNorm takes both mean and mean(g) for 0.
namespace chiron::gpu {

inline constexpr int kNormThreads = 256;

template <class T>
struct NormBackward {
  T* dx;
  float *parts_w, *parts_b;  ///< (ranges, cols): sums over each range of rows; null where not asked for
  const T *dy, *x, *w;
  const float* stat;  ///< rstd of each row, or mean and rstd
  int64_t rows, cols;
  int64_t range;  ///< rows of a range, which a block works on
};

/// What a team adds up of each column, in shared memory or in its row of a buffer. Each piece of 16 bytes of a row of T
/// belongs to one thread. In shared memory the first floats of all pieces lie together, then the next ones: lanes that
/// are neighbours use neighbouring banks.
template <class T, bool kShared>
struct ColumnSums {
  float* at;  ///< null: nothing is summed
  int64_t cols, pieces;

  static constexpr int kParts = kVec<T> / 4;  // of a piece, 4 floats each
  __device__ float* part(int64_t piece, int k) const {
    return at + 4 * (kShared ? k * pieces + piece : piece * kParts + k);
  }
  __device__ int64_t room(int64_t piece, int k) const { return kShared ? 4 : cols - 4 * (piece * kParts + k); }
  __device__ void zero(int64_t piece) const {
    if (!at) return;
    for (int k = 0; k < kParts; ++k) store(part(piece, k), Floats<float>{}, room(piece, k));
  }
  __device__ void add(int64_t piece, const Floats<T>& x) const {
    if (!at) return;
    for (int k = 0; k < kParts; ++k) {
      Floats<float> sum = load(part(piece, k), room(piece, k));
      for (int j = 0; j < 4; ++j) sum[j] += x[4 * k + j];
      store(part(piece, k), sum, room(piece, k));
    }
  }
};

/// A block per range of rows, a team per row. Bound by memory: dy and x are read once from it and once more from the
/// cache, dx is read and written.
template <class T, bool kCentred, bool kWarp, bool kShared>
__global__ void __launch_bounds__(kNormThreads) norm_backward_kernel(NormBackward<T> a) {
  SharedMemory memory;
  const Team<kWarp> team(memory);
  const int teams = kWarp ? num_warps() : 1, own = kWarp ? warp() : 0;
  const int64_t pieces = (a.cols + kVec<T> - 1) / kVec<T>;
  const int row_sums = static_cast<int>(kShared ? pieces * kVec<T> : 0);
  const auto make_sums = [&](float* parts) {
    float* at = nullptr;
    if (parts) {
      if constexpr (kShared)
        at = memory.take<float>(teams * row_sums).data() + own * row_sums;
      else
        at = parts + block() * a.cols;
    }
    return ColumnSums<T, kShared>{at, a.cols, pieces};
  };
  const auto sums_w = make_sums(a.parts_w), sums_b = make_sums(a.parts_b);
  for (int64_t p = team.rank(); p < pieces; p += team.size()) {
    sums_w.zero(p);
    sums_b.zero(p);
  }

  const int64_t begin = block() * a.range, end = begin + a.range < a.rows ? begin + a.range : a.rows;
  for (int64_t row = begin + own; row < end; row += teams) {
    const T *dy = a.dy + row * a.cols, *x = a.x + row * a.cols;
    T* dx = a.dx + row * a.cols;
    const float mean = kCentred ? a.stat[2 * row] : 0, rstd = kCentred ? a.stat[2 * row + 1] : a.stat[row];
    float sum_g = 0, sum_gn = 0;
    for (int64_t p = team.rank(); p < pieces; p += team.size()) {
      const int64_t i = p * kVec<T>, n = a.cols - i;
      const Floats<T> up = load(dy + i, n), in = load(x + i, n), weight = load(a.w + i, n);
      for (int j = 0; j < kVec<T>; ++j) {
        const float g = up[j] * weight[j];
        sum_g += g;
        sum_gn += g * ((in[j] - mean) * rstd);
      }
    }
    const auto cols = static_cast<float>(a.cols);
    const float mean_g = kCentred ? team.sum(sum_g) / cols : 0, mean_gn = team.sum(sum_gn) / cols;
    for (int64_t p = team.rank(); p < pieces; p += team.size()) {
      const int64_t i = p * kVec<T>, n = a.cols - i;
      const Floats<T> up = load(dy + i, n), in = load(x + i, n), weight = load(a.w + i, n);
      Floats<T> out = load(dx + i, n), product;
      for (int j = 0; j < kVec<T>; ++j) {
        const float z = (in[j] - mean) * rstd;
        out[j] += rstd * (up[j] * weight[j] - mean_g - z * mean_gn);
        product[j] = up[j] * z;
      }
      store(dx + i, out, n);
      sums_w.add(p, product);
      sums_b.add(p, up);
    }
  }
  if constexpr (!kShared) return;

  if constexpr (kWarp) sync_block();
  const auto write = [&](const ColumnSums<T, kShared>& sums, float* parts) {
    if (!parts) return;
    for (int64_t p = thread(); p < pieces; p += num_threads())
      for (int k = 0; k < sums.kParts; ++k) {
        Floats<float> total{};
        for (int t = 0; t < teams; ++t) {
          const Floats<float> sum = load(sums.part(p, k) + (t - own) * row_sums, 4);
          for (int j = 0; j < 4; ++j) total[j] += sum[j];
        }
        const int64_t i = p * kVec<T> + 4 * k;
        store(parts + block() * a.cols + i, total, a.cols - i);
      }
  };
  write(sums_w, a.parts_w);
  write(sums_b, a.parts_b);
}

template <bool kCentred, class T>
void launch_norm_backward(Stream& s, const char* kernel, const NormBackward<T>& a) {
  if (a.rows == 0) return;
  // Four blocks at a time have room for so much on a multiprocessor that has 200 KiB; one, on any.
  constexpr int64_t kWarpsShared = 48 << 10, kBlockShared = 64 << 10, kMostWarps = kNormThreads / 32, kShortRow = 2048;
  const int64_t num_sums = (a.parts_w ? 1 : 0) + (a.parts_b ? 1 : 0);
  const int64_t bytes = num_sums * shared_bytes<float>((a.cols + kVec<T> - 1) / kVec<T> * kVec<T>);
  const bool by_warp = a.cols <= kShortRow && kMostWarps * bytes <= kWarpsShared;
  const bool in_shared = by_warp || kTeamShared + bytes <= kBlockShared;
  launch(s,
         {.kernel = kernel,
          .blocks = (a.rows + a.range - 1) / a.range,
          .threads = kNormThreads,
          .shared = by_warp     ? kMostWarps * bytes
                    : in_shared ? kTeamShared + bytes
                                : kTeamShared},
         by_warp     ? norm_backward_kernel<T, kCentred, true, true>
         : in_shared ? norm_backward_kernel<T, kCentred, false, true>
                     : norm_backward_kernel<T, kCentred, false, false>,
         a);
}

}  // namespace chiron::gpu
