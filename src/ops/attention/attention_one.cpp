#include <cmath>
#include <limits>

#include "ops/attention/tiles.h"

namespace chiron {
namespace {

using namespace tiles;

/// One query of one head against a long row of keys: bound by reading keys and values once.
template <class T, int W>
struct OneQuery {
  using A = Acc<T>;
  using V = simd::Vec<A>;
  static constexpr A kInfinity = std::numeric_limits<A>::infinity();

  Rows o, q, k, v;
  A* lse;
  AttentionShape a;
  Dropout dropout;

  inline void operator()(int64_t sequence, int64_t head, int64_t t) const {
    const int64_t row = sequence * a.q_length + t, dim = a.head_dim, ld = round_up(dim);
    const int64_t kv_col = head / (a.heads / a.kv_heads) * dim;
    alignas(64) A query[kMaxHeadDim], out[kMaxHeadDim], p[kTile], drawn[2 * kTile];
    Sight sight;
    sight.look(a, sequence, t, 1);
    load_rows<A>(query, q, row, head * dim, 1, dim, static_cast<A>(a.scale));
    for (int64_t d = 0; d < ld; d += simd::kLanes) simd::store(out + d, V{});
    A highest = -kInfinity, sum = 0;
    const int64_t last = sight.high[0];
    for (int64_t j = sight.low[0]; j <= last; j += kTile) {
      const int64_t keys = std::min(kTile, last + 1 - j), first_row = sequence * key_stride(a) + j;
      const T* key = reinterpret_cast<const T*>(k.at) + first_row * k.ld + kv_col;
      V top = simd::splat(highest);
      for (int64_t i = 0; i < kTile; i += kBlock) {
        scores(p + i, key + i * k.ld, query, std::clamp<int64_t>(keys - i, 0, kBlock));
        top = simd::max<A>(top, simd::load(p + i));
      }
      const A now = simd::max_of<A>(top), shift = now == -kInfinity ? A(0) : now;
      V sums{};
      for (int64_t i = 0; i < kTile; i += simd::kLanes) {
        const V e = simd::exp<A>(simd::load(p + i) - shift);
        simd::store(p + i, e);
        sums += e;
      }
      const A correction = simd::exp<A>(simd::splat(highest - shift))[0];
      sum = sum * correction + simd::sum<A>(sums);
      highest = now;
      if (dropout.on) {
        const A* factor = dropout.factors(drawn, row, a.k_offset + j, head);
        for (int64_t i = 0; i < kTile; i += simd::kLanes)
          simd::store(p + i, simd::load(p + i) * simd::load(factor + i));
      }
      const T* value = reinterpret_cast<const T*>(v.at) + first_row * v.ld + kv_col;
      int64_t d = 0;
      for (; d + 4 * simd::kLanes <= dim; d += 4 * simd::kLanes) add_values<4>(out + d, value + d, p, keys, correction);
      for (; d + simd::kLanes <= dim; d += simd::kLanes) add_values<1>(out + d, value + d, p, keys, correction);
      if (d < dim) {
        V acc = simd::load(out + d) * correction;
        for (int64_t i = 0; i < keys; ++i) acc += p[i] * simd::load(value + i * v.ld + d, dim - d);
        simd::store(out + d, acc);
      }
    }
    for (int64_t d = 0; d < ld; d += simd::kLanes)
      simd::store(out + d, sum == 0 ? V{} : simd::load(out + d) * (A(1) / sum));
    store_rows<A>(o, row, head * dim, 1, dim, out);
    lse[row * a.heads + head] = sum == 0 ? -kInfinity : highest + std::log(sum);
  }

 private:
  /// p[i] = query . key i for kBlock keys, -inf from `keys` on. Sixteen vectors of partial sums are transposed and
  /// added up, which is cheaper than sixteen sums across lanes.
  inline void scores(A* p, const T* key, const A* query, int64_t keys) const {
    alignas(64) A partial[kBlock * kBlock], turned[kBlock * kBlock];
    const int64_t dim = a.head_dim;
    for (int64_t i = 0; i < keys; ++i, key += k.ld) {
      V dot{};
      int64_t d = 0;
      for (; d + simd::kLanes <= dim; d += simd::kLanes) dot += simd::load(query + d) * simd::load(key + d);
      if (d < dim) dot += simd::load(query + d) * simd::load(key + d, dim - d);
      simd::store(partial + i * kBlock, dot);
    }
    for (int64_t i = keys; i < kBlock; ++i) simd::store(partial + i * kBlock, simd::splat(-kInfinity));
    transpose<A, W>(turned, kBlock, partial, kBlock, kBlock, kBlock);
    V sum = simd::load(turned);
    for (int64_t i = 1; i < kBlock; ++i) sum += simd::load(turned + i * kBlock);
    simd::store(p, sum);
  }

  /// out = out * correction + sum of p[i] * value i, on N vectors.
  template <int N>
  inline void add_values(A* out, const T* value, const A* p, int64_t keys, A correction) const {
    V sum[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sum[n] = simd::load(out + n * simd::kLanes) * correction;
    for (int64_t i = 0; i < keys; ++i, value += v.ld)
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sum[n] += p[i] * simd::load(value + n * simd::kLanes);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) simd::store(out + n * simd::kLanes, sum[n]);
  }
};

}  // namespace

void tiles::attend_one_by_one(Stream& s, const Rows& o, Tensor lse, const Rows& q, const Rows& k, const Rows& v,
                              const AttentionShape& a, const Dropout& drop) {
  by_lanes(q.dtype, [&]<class A, int W, CpuLevel kLevel>() {
    A* const sums = lse.data<A>();
    s.parallel_at<kLevel>(q.rows * a.heads, 1, [=](int64_t begin, int64_t end) {
      by_element<A>(q.dtype, [&]<class T>() {
        const OneQuery<T, W> query{o, q, k, v, sums, a, drop};
        for (int64_t i = begin; i < end; ++i) query(i / a.heads / a.q_length, i % a.heads, i / a.heads % a.q_length);
      });
    });
  });
}

}  // namespace chiron
