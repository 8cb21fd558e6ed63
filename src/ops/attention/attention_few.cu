#include <algorithm>

#include "ops/attention/attention_gpu.h"
#include "ops/attention/attention_tiles.cuh"

namespace chiron::gpu {
namespace {

using namespace tiles;

constexpr int kFewThreads = 256;
constexpr int kTeam = 8;  // lanes that read a key together
constexpr int kTeams = kFewThreads / kTeam;
constexpr int kFewWarps = kFewThreads / 32;  // at most

/// Softmax-weighted sum of some values, with what brings several of them together.
template <int kSize>
struct Partial {
  float highest = -kInfinity, sum = 0;  // of scores times log2(e), and of 2^(score - highest)
  float out[kSize] = {};

  __device__ void add(float other_highest, float other_sum, const float (&other)[kSize]) {
    const float top = fmaxf(highest, other_highest), shift = top == -kInfinity ? 0.0f : top;
    const float own = fast_exp2(highest - shift), theirs = fast_exp2(other_highest - shift);
    highest = top;
    sum = sum * own + other_sum * theirs;
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[i] = out[i] * own + other[i] * theirs;
  }
};

/// The first n elements at p (up to kVec), the others 0.
template <class T>
__device__ inline Bits16 load_piece(const T* p, int n) {
  if (n >= kVec<T> && is_aligned16(p)) return load16(p);
  return pack<T>(load(p, n));
}

/// A block takes one query of one head, or part of its keys; each team of kTeam lanes takes every kTeams-th key, of
/// which a lane holds kPieces pieces of 16 bytes. Bound by reading keys and values once.
template <class T, int kPieces>
__global__ void __launch_bounds__(kFewThreads)
    few_queries_kernel(Matrix<T> o, float* lse, float* partial, Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                       Problem p, int splits) {
  constexpr int kSize = kPieces * kVec<T>, kAhead = std::max(1, 4 / kPieces);
  SharedMemory memory;
  Shared<float> tops = memory.take<float>(kFewWarps), totals = memory.take<float>(kFewWarps);
  Shared<float> outs = memory.take<float>(kFewWarps * kTeam * kSize);
  int64_t at = block();
  const int split = static_cast<int>(at % splits);
  at /= splits;
  const int head = static_cast<int>(at % p.heads);
  const int64_t row = at / p.heads;
  const int sequence = static_cast<int>(row / p.q_length), t = static_cast<int>(row % p.q_length);
  const int64_t key_col = int64_t{head / (p.heads / p.kv_heads)} * p.dim;
  const T* const from_q = q.at + row * q.ld + int64_t{head} * p.dim;
  const T* const from_k = k.at + (sequence * p.k_stride - p.shift) * k.ld + key_col;
  const T* const from_v = v.at + (sequence * p.k_stride - p.shift) * v.ld + key_col;
  const int team = thread() / kTeam;
  auto column = [](int piece) { return (piece * kTeam + lane() % kTeam) * kVec<T>; };

  float query[kSize];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const Floats<T> x = unpack<T>(load_piece(from_q + column(i), p.dim - column(i)));
#pragma unroll
    for (int c = 0; c < kVec<T>; ++c) query[i * kVec<T> + c] = x[c] * (p.scale * kLog2E);
  }
  Partial<kSize> mine;
  const int first = p.first_key(sequence, t), end = p.last_key(t) + 1;
  const int share = (std::max(end - first, 0) + splits - 1) / splits;
  const int begin = first + split * share, stop = std::min(begin + share, end);
  const Draws draws = p.drops ? Draws(p, head) : Draws();
  for (int j = begin; j < stop; j += kTeams * kAhead) {
    Bits16 key[kAhead][kPieces], value[kAhead][kPieces];
    float score[kAhead], top = mine.highest;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int64_t at_key = j + a * kTeams + team;
      const bool inside = at_key < stop;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int n = inside ? p.dim - column(i) : 0;
        key[a][i] = n > 0 ? load_piece(from_k + at_key * k.ld + column(i), n) : Bits16{};
        value[a][i] = n > 0 ? load_piece(from_v + at_key * v.ld + column(i), n) : Bits16{};
      }
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      score[a] = 0;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const Floats<T> x = unpack<T>(key[a][i]);
#pragma unroll
        for (int c = 0; c < kVec<T>; ++c) score[a] += query[i * kVec<T> + c] * x[c];
      }
#pragma unroll
      for (int mask = 1; mask < kTeam; mask *= 2) score[a] += shuffle_xor(score[a], mask);
      if (j + a * kTeams + team >= stop) score[a] = -kInfinity;
      top = fmaxf(top, score[a]);
    }
    const float shift = top == -kInfinity ? 0.0f : top, correction = fast_exp2(mine.highest - shift);
    mine.highest = top;
    mine.sum *= correction;
#pragma unroll
    for (int c = 0; c < kSize; ++c) mine.out[c] *= correction;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      float weight = fast_exp2(score[a] - shift);
      mine.sum += weight;
      if (p.drops) {
        const int at_key = j + a * kTeams + team;
        const auto words = draws.words(p.index[row], p.first_group + static_cast<uint32_t>(at_key / 4));
        weight = words[static_cast<size_t>(at_key % 4)] < draws.threshold ? 0.0f : weight * p.kept;
      }
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const Floats<T> x = unpack<T>(value[a][i]);
#pragma unroll
        for (int c = 0; c < kVec<T>; ++c) mine.out[i * kVec<T> + c] += weight * x[c];
      }
    }
  }

  // The teams of a warp, then its first team for all warps. A fixed order: the lower lane's part is added to first.
#pragma unroll
  for (int mask = kTeam; mask < kLanes; mask *= 2) {
    float other[kSize];
#pragma unroll
    for (int c = 0; c < kSize; ++c) other[c] = shuffle_xor(mine.out[c], mask);
    const float other_highest = shuffle_xor(mine.highest, mask), other_sum = shuffle_xor(mine.sum, mask);
    mine.add(other_highest, other_sum, other);
  }
  if (lane() == 0) tops[warp()] = mine.highest, totals[warp()] = mine.sum;
  if (lane() < kTeam) {
#pragma unroll
    for (int c = 0; c < kSize; ++c) outs[(warp() * kTeam + lane()) * kSize + c] = mine.out[c];
  }
  sync_block();
  if (thread() >= kTeam) return;
  for (int w = 1; w < num_warps(); ++w) {
    float other[kSize];
#pragma unroll
    for (int c = 0; c < kSize; ++c) other[c] = outs[(w * kTeam + lane()) * kSize + c];
    mine.add(tops[w], totals[w], other);
  }
  const float inverse = mine.sum == 0 ? 0.0f : 1 / mine.sum;
  const float total = mine.sum == 0 ? -kInfinity : mine.highest * (1 / kLog2E) + log(mine.sum);
  float* const part = splits > 1 ? partial + block() * (p.dim + 1) : nullptr;
  if (lane() == 0) *(part ? part + p.dim : lse + row * p.heads + head) = total;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    Floats<T> x;
#pragma unroll
    for (int c = 0; c < kVec<T>; ++c) {
      x[c] = mine.out[i * kVec<T> + c] * inverse;
      if (part && column(i) + c < p.dim) part[column(i) + c] = x[c];
    }
    if (!part) store(o.at + row * o.ld + int64_t{head} * p.dim + column(i), x, p.dim - column(i));
  }
}

/// A warp adds up the parts of one query of one head, in their order.
template <class T>
__global__ void __launch_bounds__(kFewThreads)
    join_parts_kernel(Matrix<T> o, float* lse, const float* partial, int64_t items, int heads, int dim, int splits) {
  const int64_t item = block() * num_warps() + warp();
  if (item >= items) return;
  const float* const parts = partial + item * splits * (dim + 1);
  float top = -kInfinity, total = 0;
  for (int i = 0; i < splits; ++i) top = fmaxf(top, parts[i * (dim + 1) + dim]);
  const float shift = top == -kInfinity ? 0.0f : top;
  for (int i = 0; i < splits; ++i) total += exp(parts[i * (dim + 1) + dim] - shift);
  T* const to = o.at + item / heads * o.ld + item % heads * dim;
  for (int d = lane(); d < dim; d += kLanes) {
    float sum = 0;
    for (int i = 0; i < splits; ++i) sum += parts[i * (dim + 1) + d] * exp(parts[i * (dim + 1) + dim] - shift);
    to[d] = from_float<T>(total == 0 ? 0.0f : sum / total);
  }
  if (lane() == 0) lse[item] = total == 0 ? -kInfinity : shift + log(total);
}

}  // namespace

int64_t attention_splits(const AttentionShape& a) {
  constexpr int64_t kBlocks = 256, kFewKeys = 256, kMaxSplits = 64;
  if (a.q_length > kFewQueries || a.sequences * a.q_length == 0) return 1;
  const int64_t blocks = a.sequences * a.q_length * a.heads, room = std::max(a.k_length, a.k_stride);
  return std::clamp<int64_t>(std::min(kBlocks / blocks, room / kFewKeys), 1, kMaxSplits);
}

void tiles::attend_few(Stream& s, const Rows& o, Tensor lse, const Rows& q, const Rows& k, const Rows& v,
                       const Problem& p, int64_t splits, Tensor partial) {
  by_gpu_float(q.dtype, [&]<class T>() {
    float* const parts = splits > 1 ? partial.data<float>() : nullptr;
    auto start = [&]<int kPieces>() {
      const int64_t shared =
          2 * shared_bytes<float>(kFewWarps) + shared_bytes<float>(int64_t{kFewWarps} * kTeam * kPieces * kVec<T>);
      const Launch how{.kernel = "few_queries_kernel",
                       .blocks = q.rows * p.heads * splits,
                       .threads = kFewThreads,
                       .shared = shared};
      launch(s, how, few_queries_kernel<T, kPieces>, Matrix<T>(o), lse.data<float>(), parts, Matrix<const T>(q),
             Matrix<const T>(k), Matrix<const T>(v), p, static_cast<int>(splits));
    };
    constexpr int kOne = kTeam * kVec<T>;
    if (p.dim <= kOne)
      start.template operator()<1>();
    else if (p.dim <= 2 * kOne)
      start.template operator()<2>();
    else if (p.dim <= 4 * kOne)
      start.template operator()<4>();
    else
      start.template operator()<8>();
    if (splits == 1) return;
    const int64_t items = q.rows * p.heads;
    // A block has 8 warps or 4.
    launch(s, {.kernel = "join_parts_kernel", .blocks = (items + 3) / 4, .threads = kFewThreads}, join_parts_kernel<T>,
           Matrix<T>(o), lse.data<float>(), parts, items, p.heads, p.dim, static_cast<int>(splits));
  });
}

}  // namespace chiron::gpu
