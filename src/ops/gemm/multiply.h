#pragma once

#include <algorithm>

#include "ops/cast/convert.h"
#include "ops/gemm/gemm.h"

/// The product itself, for ops that are one with something around it. Tells no trace.
namespace chiron {

/// Scratch for a product with 16-bit operands: f32 copies of one block of each. Absent where the operand is wide.
struct Panels {
  Tensor a, b, c;
};

/// Blocks in which 16-bit operands are widened. kPanelDepth is a multiple of BLIS's own depths (256, 384), so that a
/// product of widened operands has the same bits as one of f32 operands.
inline constexpr int64_t kPanelRows = 1024, kPanelCols = 1024, kPanelDepth = 768;

inline bool is_narrow(DType dtype) { return size_of(dtype) < 4; }

/// The columns of op(a): its number of rows is that of C.
inline int64_t depth_of(const Rows& a, Op op) { return op == Op::none ? a.cols : a.rows; }

/// CHECKs sizes and dtypes of a product.
void check_product(Rows c, Rows a, Op op_a, Rows b, Op op_b);

/// Takes what multiply() needs. Call it on dry streams too.
Panels push_panels(Stack& temp, Rows c, Rows a, Op op_a, Rows b, Op op_b);

/// Bytes that a product of two operands of `dtype` packs on so many threads, besides its panels.
int64_t packing_bytes(int64_t m, int64_t n, int64_t k, DType dtype, int threads);

/// C = op(A) op(B) or C += as in gemm(). A stream that is not dry.
void multiply(Stream& s, Rows c, Accum accum, Rows a, Op op_a, Rows b, Op op_b, const Panels& panels);

/// The same for a narrow C, block by block: start(block, i, j) fills the f32 block that stands for C from row i, column
/// j on and says whether the product is added to it; then it is rounded into C, once.
template <class Start>
void multiply_narrow(Stream& s, Rows c, Rows a, Op op_a, Rows b, Op op_b, const Panels& panels, Start&& start) {
  for (int64_t j = 0; j < c.cols; j += kPanelCols) {
    for (int64_t i = 0; i < c.rows; i += kPanelRows) {
      const int64_t rows = std::min(kPanelRows, c.rows - i), cols = std::min(kPanelCols, c.cols - j);
      Rows block = Rows(panels.c).slice(0, rows).columns(0, cols);
      Accum accum = start(block, i, j);
      multiply(s, block, accum, op_a == Op::none ? a.slice(i, i + rows) : a.columns(i, rows), op_a,
               op_b == Op::none ? b.columns(j, cols) : b.slice(j, j + cols), op_b, panels);
      convert(s, c.slice(i, i + rows).columns(j, cols), block);
    }
  }
}

}  // namespace chiron
