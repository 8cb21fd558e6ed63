#include "ops/embedding/embedding.h"

#include <algorithm>

#include "ops/cast/convert.h"
#include "ops/embedding/embedding_gpu.h"

namespace chiron {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per range
constexpr int64_t kTableRows = 16;   // rows and columns of the table that one range of the backward pass sums
constexpr int64_t kTableCols = 256;

/// to += from
template <class A, class T>
inline void add_row(A* to, const T* from, int64_t n) {
  simd::for_each_vector(n, [&](int64_t i, auto lanes) {
    simd::store(to + i, simd::load(to + i, lanes) + simd::load(from + i, lanes), lanes);
  });
}

}  // namespace

void embedding(Stream& s, Tensor y, Accum accum, View ids, View w, int64_t first) {
  const int64_t tokens = ids.numel(), cols = w.cols(), rows = w.rows();
  CHECK(w.shape.rank == 2 && y.numel() == tokens * cols && y.cols() == cols && y.dtype == w.dtype &&
            ids.dtype == DType::i32,
        "embedding of {} {} from {} {} into {} {}", name_of(ids.dtype), ids.shape.str(), name_of(w.dtype),
        w.shape.str(), name_of(y.dtype), y.shape.str());
  OpScope op(s, "embedding", {y}, {ids, w}, 0);
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::embedding(s, y, accum, ids, w, first);
  by_float(w.dtype, [&]<class T>() {
    const int32_t* pi = ids.data<int32_t>();
    const T* pw = w.data<T>();
    T* py = y.data<T>();
    s.parallel(tokens, kGrain / std::max<int64_t>(cols, 1), [=](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = pi[t] - first;
        const bool here = 0 <= row && row < rows;
        T* out = py + t * cols;
        if (accum == Accum::add) {
          if (here) add_row(out, pw + row * cols, cols);
        } else if (here) {
          std::memcpy(static_cast<void*>(out), pw + row * cols, static_cast<size_t>(cols) * sizeof(T));
        } else {
          std::memset(static_cast<void*>(out), 0, static_cast<size_t>(cols) * sizeof(T));
        }
      }
    });
  });
}

void embedding_backward(Stream& s, Tensor dw, Accum accum, View dy, const Ids& ids, int64_t first, Stack& temp) {
  const int64_t tokens = ids.ids.numel(), cols = dw.cols(), rows = dw.rows();
  CHECK(dw.shape.rank == 2 && dy.numel() == tokens * cols && dy.cols() == cols && dw.dtype == acc_dtype(dy.dtype) &&
            ids.ids.dtype == DType::i32 && ids.order.dtype == DType::i32 && ids.order.numel() == tokens,
        "embedding_backward of {} {} with ids {} in order {} into {} {}", name_of(dy.dtype), dy.shape.str(),
        ids.ids.shape.str(), ids.order.shape.str(), name_of(dw.dtype), dw.shape.str());
  Scope scope(temp);
  Tensor heads;
  if (s.on_gpu()) heads = temp.push(DType::f32, {(tokens + gpu::kEmbeddingPiece - 1) / gpu::kEmbeddingPiece, cols});
  OpScope op(s, "embedding_backward", {dw}, {dy, ids.ids, ids.order}, static_cast<double>(dy.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::embedding_backward(s, dw, accum, dy, ids, first, heads);
  by_float(dy.dtype, [&]<class T>() {
    using A = Acc<T>;
    const int32_t *pi = ids.ids.data<int32_t>(), *order = ids.order.data<int32_t>();
    const T* pdy = dy.data<T>();
    A* pdw = dw.data<A>();
    // Each range owns a piece of the table: a frequent id is shared out by columns, and no sum is.
    const int64_t down = (rows + kTableRows - 1) / kTableRows, across = (cols + kTableCols - 1) / kTableCols;
    s.parallel(down * across, 1, [=](int64_t piece, int64_t) {
      const int64_t begin = piece / across * kTableRows, end = std::min(begin + kTableRows, rows);
      const int64_t left = piece % across * kTableCols, width = std::min(kTableCols, cols - left);
      const int32_t* at = std::partition_point(order, order + tokens, [=](int32_t t) { return pi[t] < first + begin; });
      for (int64_t row = begin; row < end; ++row) {
        A* sum = pdw + row * cols + left;
        bool fresh = accum == Accum::overwrite;
        for (; at < order + tokens && pi[*at] == first + row; ++at) {
          const T* in = pdy + *at * cols + left;
          if (fresh)
            convert_row(sum, in, width);
          else
            add_row(sum, in, width);
          fresh = false;
        }
        if (fresh) std::memset(sum, 0, static_cast<size_t>(width) * sizeof(A));
      }
    });
  });
}

}  // namespace chiron
