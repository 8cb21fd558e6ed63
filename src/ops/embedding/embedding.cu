#include <algorithm>

#include "core/launch.h"
#include "gpu/reduce.h"
#include "gpu/vec.h"
#include "ops/embedding/embedding_gpu.h"

namespace chiron::gpu {
namespace {

constexpr int kPiece = kEmbeddingPiece;
constexpr int kSumThreads = 64, kJoinThreads = 256, kShares = 4;
constexpr int32_t kNoId = -1;

/// A team per token. Bound by memory: a row of the table is read and one of y written (with `add` also read).
template <class T, bool kWarp>
__global__ void __launch_bounds__(256) embedding_kernel(T* y, const int32_t* ids, const T* w, int64_t tokens,
                                                        int64_t rows, int64_t cols, int64_t first, bool add) {
  SharedMemory memory;
  Team<kWarp> team(memory);
  for (int64_t t = team.first_row(); t < tokens; t += team.num_teams()) {
    const int64_t row = ids[t] - first;
    const bool here = 0 <= row && row < rows;
    if (add && !here) continue;
    T* out = y + t * cols;
    for (int64_t i = static_cast<int64_t>(team.rank()) * kVec<T>; i < cols; i += team.size() * kVec<T>) {
      Floats<T> v = here ? load(w + row * cols + i, cols - i) : Floats<T>{};
      if (add) {
        const Floats<T> old = load(out + i, cols - i);
        for (int e = 0; e < kVec<T>; ++e) v[e] += old[e];
      }
      store(out + i, v, cols - i);
    }
  }
}

/// to = x, or to += x, for the first n columns.
template <int kCols>
__device__ void put(float* to, const float* x, int64_t n, bool add) {
  for (int i = 0; i < kCols; i += kVec<float>) {
    Floats<float> v = add ? load(to + i, n - i) : Floats<float>{};
    for (int e = 0; e < kVec<float>; ++e) v[e] += x[i + e];
    store(to + i, v, n - i);
  }
}

/// Sums dy over the tokens of each id, in sorted order, within pieces of kPiece sorted tokens. A block of threads per
/// piece and tile of columns, 16 bytes of them by thread. Bound by memory: dy is read once, in pieces of 16 bytes, and
/// a row is written for each id of a piece.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    piece_kernel(float* dw, float* heads, const T* dy, const int32_t* ids, const int32_t* order, int64_t tokens,
                 int64_t rows, int64_t cols, int64_t first, bool add, int tiles) {
  constexpr int kAhead = 4;  // rows of dy under way at one time
  SharedMemory memory;
  auto token = memory.take<int32_t>(kPiece), id = memory.take<int32_t>(kPiece + 2);
  const int64_t pieces = (tokens + kPiece - 1) / kPiece;
  for (int64_t piece = block(); piece < pieces; piece += num_blocks()) {
    const int64_t begin = piece * kPiece;
    const int n = static_cast<int>(tokens - begin < kPiece ? tokens - begin : kPiece);
    sync_block();
    for (int i = thread(); i < n + 2; i += num_threads()) {
      const int64_t at = begin + i - 1;  // from one before the piece to one behind it
      const bool there = at >= 0 && at < tokens;
      const int32_t t = there ? order[at] : 0;
      if (i > 0 && i <= n) token[i - 1] = t;
      id[i] = there ? ids[t] : kNoId;
    }
    sync_block();
    for (int64_t c = (block_y() * kSumThreads + thread()) * int64_t{kVec<T>}; c < cols;
         c += int64_t{tiles} * kSumThreads * kVec<T>) {
      Floats<T> sum{};
      bool fresh = true, head = id[0] == id[1];
      for (int i = 0; i < n; i += kAhead) {
        Floats<T> ahead[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; ++j)
          if (i + j < n) ahead[j] = load(dy + token[i + j] * cols + c, cols - c);
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          if (i + j >= n) continue;
          for (int e = 0; e < kVec<T>; ++e) sum[e] = fresh ? ahead[j][e] : sum[e] + ahead[j][e];
          const int32_t now = id[i + j + 1];
          fresh = i + j + 1 == n || id[i + j + 2] != now;
          if (!fresh) continue;
          const int64_t row = now - first;
          if (head)
            put<kVec<T>>(heads + piece * cols + c, sum.x, cols - c, false);
          else if (0 <= row && row < rows)
            put<kVec<T>>(dw + row * cols + c, sum.x, cols - c, add);
          head = false;
        }
      }
    }
  }
}

/// Adds what later pieces have of an id to its row. A block of threads per piece in which such an id begins and tile of
/// columns: 64 threads take four columns each, and there are kShares of these, which share the pieces out. Bound by
/// memory: one row read for each piece that an id begins before.
__global__ void __launch_bounds__(kJoinThreads)
    join_kernel(float* dw, const float* heads, const int32_t* ids, const int32_t* order, int64_t tokens, int64_t rows,
                int64_t cols, int64_t first, int tiles) {
  constexpr int kWidth = kJoinThreads / kShares;
  SharedMemory memory;
  auto shares = memory.take<Floats<float>>(kJoinThreads);
  const int64_t pieces = (tokens + kPiece - 1) / kPiece;
  const auto id_at = [=](int64_t i) { return ids[order[i]]; };
  for (int64_t piece = block(); piece + 1 < pieces; piece += num_blocks()) {
    const int64_t begin = piece * kPiece, end = begin + kPiece;
    const int32_t id = id_at(end - 1);
    const bool begins_here = piece == 0 || id_at(begin - 1) != id;
    const int64_t row = id - first;
    if (id_at(end) != id || !begins_here || row < 0 || row >= rows) continue;
    // Pieces (piece, last] begin with this id; the ids are sorted.
    int64_t last = piece + 1, beyond = pieces;
    while (beyond - last > 1) {
      const int64_t middle = (last + beyond) / 2;
      (id_at(middle * kPiece) == id ? last : beyond) = middle;
    }
    const int share = thread() / kWidth;
    const int64_t each = (last - piece + kShares - 1) / kShares, from = piece + 1 + share * each;
    const int64_t to = from + each < last + 1 ? from + each : last + 1;
    for (int64_t tile = block_y(); tile * kWidth * kVec<float> < cols; tile += tiles) {
      const int64_t c = (tile * kWidth + thread() % kWidth) * kVec<float>;
      Floats<float> sum{};
#pragma unroll 4
      for (int64_t p = from; p < to; ++p) {
        const Floats<float> v = load(heads + p * cols + c, cols - c);
        for (int e = 0; e < kVec<float>; ++e) sum[e] += v[e];
      }
      shares[thread()] = sum;
      sync_block();
      if (share == 0) {
        for (int other = 1; other < kShares; ++other)
          for (int e = 0; e < kVec<float>; ++e) sum[e] += shares[thread() + other * kWidth][e];
        if (c < cols) put<kVec<float>>(dw + row * cols + c, sum.x, cols - c, true);
      }
      sync_block();
    }
  }
}

int tiles_of(int64_t cols, int64_t width) {
  return static_cast<int>(std::clamp<int64_t>((cols + width - 1) / width, 1, 65535));
}

}  // namespace

void embedding(Stream& s, Tensor y, Accum accum, View ids, View w, int64_t first) {
  const int64_t tokens = ids.numel(), cols = w.cols();
  const auto [by_warp, how] = row_launch("embedding_kernel", tokens, cols);
  by_gpu_float(w.dtype, [&]<class T>() {
    launch(s, how, by_warp ? embedding_kernel<T, true> : embedding_kernel<T, false>, y.data<T>(), ids.data<int32_t>(),
           w.data<T>(), tokens, w.rows(), cols, first, accum == Accum::add);
  });
}

void embedding_backward(Stream& s, Tensor dw, Accum accum, View dy, const Ids& ids, int64_t first, Tensor heads) {
  if (accum == Accum::overwrite) s.fill_bytes(dw, 0);
  const int64_t tokens = ids.ids.numel(), cols = dw.cols(), rows = dw.rows(), pieces = heads.shape[0];
  if (pieces == 0) return;
  const int64_t blocks = std::min<int64_t>(pieces, 1 << 20);
  const auto *pi = ids.ids.data<int32_t>(), *order = ids.order.data<int32_t>();
  auto *pdw = dw.data<float>(), *ph = heads.data<float>();
  by_gpu_float(dy.dtype, [&]<class T>() {
    const int tiles = tiles_of(cols, kSumThreads * kVec<T>);
    launch(s,
           {.kernel = "piece_kernel",
            .blocks = blocks,
            .threads = kSumThreads,
            .shared = shared_bytes<int32_t>(kPiece) + shared_bytes<int32_t>(kPiece + 2),
            .blocks_y = tiles},
           piece_kernel<T>, pdw, ph, dy.data<T>(), pi, order, tokens, rows, cols, first, accum == Accum::add, tiles);
  });
  if (pieces == 1) return;
  const int tiles = tiles_of(cols, kJoinThreads / kShares * kVec<float>);
  launch(s,
         {.kernel = "join_kernel",
          .blocks = blocks,
          .threads = kJoinThreads,
          .shared = shared_bytes<Floats<float>>(kJoinThreads),
          .blocks_y = tiles},
         join_kernel, pdw, ph, pi, order, tokens, rows, cols, first, tiles);
}

}  // namespace chiron::gpu
