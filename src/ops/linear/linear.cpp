#include "ops/linear/linear.h"

#include "ops/gemm/gemm_gpu.h"
#include "ops/gemm/gemv.h"
#include "ops/gemm/multiply.h"
#include "ops/linear/linear_gpu.h"
#include "ops/partial_sums.h"

namespace chiron {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements per range
constexpr int64_t kRowGrain = 64;    // rows of one partial sum of db

double product_flops(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// What a product takes of scratch memory, wherever it runs.
struct ProductScratch {
  Tensor gpu;
  Panels cpu;
};
ProductScratch push_scratch(Stream& s, Stack& temp, const Product& p) {
  if (s.on_gpu()) return {.gpu = push_product_scratch(s, p, temp)};
  return {.cpu = push_panels(temp, p.c, p.a, p.op_a, p.b, p.op_b)};
}

/// C = op(A) op(B) + addend, which is C or absent.
void run_product(Stream& s, const Product& p, const ProductScratch& scratch) {
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::product(s, p, scratch.gpu);
  multiply(s, p.c, p.addend.present() ? Accum::add : Accum::overwrite, p.a, p.op_a, p.b, p.op_b, scratch.cpu);
}

/// out = bias + residual from row i, column j on: what the product is added to. out has their kind or acc_dtype of it.
Accum start(Stream& s, Rows out, View bias, View residual, int64_t i, int64_t j) {
  if (!bias.present() && !residual.present()) return Accum::overwrite;
  if (!bias.present() && residual.at == out.at) return Accum::add;
  by_float(bias.present() ? bias.dtype : residual.dtype, [&]<class T>() {
    using A = Acc<T>;
    const int64_t cols = out.cols, ld = out.ld, ldr = residual.present() ? residual.cols() : 0;
    const T* pb = bias.present() ? bias.data<T>() + j : nullptr;
    const T* pr = residual.present() ? residual.data<T>() + i * ldr + j : nullptr;
    A* po = out.data<A>();
    s.parallel(out.rows, kGrain / cols, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        A* to = po + r * ld;
        if (!pr) {
          convert_row(to, pb, cols);
        } else if (!pb) {
          convert_row(to, pr + r * ldr, cols);
        } else {
          const T* from = pr + r * ldr;
          int64_t c = 0;
          for (; c + simd::kLanes <= cols; c += simd::kLanes)
            simd::store(to + c, simd::load(from + c) + simd::load(pb + c));
          for (; c < cols; ++c) to[c] = static_cast<A>(from[c]) + static_cast<A>(pb[c]);
        }
      }
    });
  });
  return Accum::add;
}

}  // namespace

void linear(Stream& s, Rows y, View x, View w, View bias, View residual, Stack& temp) {
  CHECK(w.shape.rank == 2 && x.dtype == y.dtype && w.dtype == y.dtype, "linear of {} {} and {} {} into {}",
        name_of(x.dtype), x.shape.str(), name_of(w.dtype), w.shape.str(), name_of(y.dtype));
  check_product(y, x, Op::none, w, Op::transpose);
  CHECK(!bias.present() || (bias.numel() == y.cols && bias.dtype == y.dtype), "linear to {} with bias {} {}", y.cols,
        name_of(bias.dtype), bias.shape.str());
  CHECK(!residual.present() || (residual.rows() == y.rows && residual.cols() == y.cols && residual.dtype == y.dtype &&
                                (residual.at != y.at || y.contiguous())),
        "linear to ({}, {}) with residual {} {}", y.rows, y.cols, name_of(residual.dtype), residual.shape.str());
  Scope scope(temp);
  const bool few = y.rows <= kGemvRows && !s.on_gpu();
  const Product p{y, x, Op::none, w, Op::transpose, bias, residual};
  const ProductScratch scratch = few ? ProductScratch{} : push_scratch(s, temp, p);
  OpScope op(s, "linear", {y}, {x, w, bias, residual}, product_flops(y.rows, y.cols, x.cols()));
  if (!op || y.rows == 0 || y.cols == 0) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::product(s, p, scratch.gpu);
  if (few) {
    gemv(s, y, x, w, bias, residual);
  } else if (is_narrow(y.dtype)) {
    multiply_narrow(s, y, x, Op::none, w, Op::transpose, scratch.cpu,
                    [&](Rows block, int64_t i, int64_t j) { return start(s, block, bias, residual, i, j); });
  } else {
    Accum accum = start(s, y, bias, residual, 0, 0);
    multiply(s, y, accum, x, Op::none, w, Op::transpose, scratch.cpu);
  }
}

void linear_backward_input(Stream& s, Tensor dx, Accum accum, Rows dy, View w, Stack& temp) {
  CHECK(w.shape.rank == 2 && dx.dtype == dy.dtype && w.dtype == dy.dtype, "linear_backward_input of {} and {} into {}",
        name_of(dy.dtype), name_of(w.dtype), name_of(dx.dtype));
  check_product(dx, dy, Op::none, w, Op::none);
  Scope scope(temp);
  const Product p{dx, dy, Op::none, w, Op::none, {}, accum == Accum::add ? Rows(dx) : Rows{}};
  const ProductScratch scratch = push_scratch(s, temp, p);
  OpScope op(s, "linear_backward_input", {dx}, {dy, w}, product_flops(dy.rows, dx.cols(), dy.cols));
  if (op) run_product(s, p, scratch);
}

void linear_backward_weight(Stream& s, Tensor dw, Accum accum, Rows dy, View x, Stack& temp) {
  CHECK(x.dtype == dy.dtype && dw.dtype == acc_dtype(dy.dtype), "linear_backward_weight of {} and {} into {}",
        name_of(dy.dtype), name_of(x.dtype), name_of(dw.dtype));
  check_product(dw, dy, Op::transpose, x, Op::none);
  Scope scope(temp);
  const Product p{dw, dy, Op::transpose, x, Op::none, {}, accum == Accum::add ? Rows(dw) : Rows{}};
  const ProductScratch scratch = push_scratch(s, temp, p);
  OpScope op(s, "linear_backward_weight", {dw}, {dy, x}, product_flops(dw.rows(), dw.cols(), dy.rows));
  if (op) run_product(s, p, scratch);
}

void linear_backward_bias(Stream& s, Tensor db, Accum accum, Rows dy, Stack& temp) {
  const int64_t rows = dy.rows, cols = dy.cols, ld = dy.ld;
  CHECK(db.numel() == cols && db.dtype == acc_dtype(dy.dtype), "linear_backward_bias of {} ({}, {}) into {} {}",
        name_of(dy.dtype), rows, cols, name_of(db.dtype), db.shape.str());
  Scope scope(temp);
  // One partial sum per range of rows, then a sum over ranges in order: the same for any number of threads.
  const int64_t parts = std::min((rows + kRowGrain - 1) / kRowGrain, s.on_gpu() ? gpu::kBiasParts : rows);
  Tensor partial = temp.push(db.dtype, {parts, cols});
  OpScope op(s, "linear_backward_bias", {db}, {dy}, static_cast<double>(rows) * static_cast<double>(cols));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) {
      gpu::column_sums(s, partial, dy);
      return add_partial_sums(s, db, accum, partial);
    }
  by_float(dy.dtype, [&]<class T>() {
    using A = Acc<T>;
    const T* pdy = dy.data<T>();
    A* pp = partial.data<A>();
    s.parallel(rows, kRowGrain, [=](int64_t begin, int64_t end) {
      A* sums = pp + begin / kRowGrain * cols;
      convert_row(sums, pdy + begin * ld, cols);
      for (int64_t r = begin + 1; r < end; ++r) {
        const T* in = pdy + r * ld;
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          simd::store(sums + i, simd::load(sums + i, n) + simd::load(in + i, n), n);
        });
      }
    });
  });
  add_partial_sums(s, db, accum, partial);
}

}  // namespace chiron
