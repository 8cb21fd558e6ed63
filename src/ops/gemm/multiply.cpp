#include "ops/gemm/multiply.h"

#include "ops/gemm/gemm_blis.h"

namespace chiron {
namespace {

constexpr int64_t kRowUnit = 12, kColUnit = 32;  // multiples of the micro-tiles of BLIS (6 x 16, 12 x 32)
constexpr int64_t kPadding = 16;                 // keeps rows of a panel off a power-of-two distance
constexpr int64_t kMinTile = 1 << 20;            // multiplications below which another thread does not pay
constexpr int64_t kZeroGrain = 1 << 15;          // elements

int64_t div_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// How C is cut: one tile per thread.
struct Tiles {
  int64_t down, across;  // number of tiles
  int64_t rows, cols;    // of a tile, but for the last ones
};

/// Time of a tile ~ rows * cols for the arithmetic + (rows + cols) for reading and packing its operands. Of the grids
/// that give each thread at most one tile, the one whose tile is cheapest. Two threads thus cut the longer side.
Tiles choose_tiles(int64_t m, int64_t n, int64_t k, int64_t threads) {
  constexpr int64_t kPackingCost = 40;
  threads = std::clamp<int64_t>(m * n * k / kMinTile, 1, threads);
  Tiles best{1, 1, m, n};
  int64_t least = INT64_MAX;
  for (int64_t down = threads; down >= 1; --down) {
    int64_t rows = div_up(div_up(m, kRowUnit), down) * kRowUnit;
    int64_t cols = div_up(div_up(n, kColUnit), threads / down) * kColUnit;
    int64_t cost = rows * cols + kPackingCost * (rows + cols);
    if (cost >= least) continue;
    least = cost;
    best = {div_up(m, rows), div_up(n, cols), rows, cols};
  }
  return best;
}

template <class T>
Operand2d<T> operand(const Rows& r, Op op) {
  return op == Op::none ? Operand2d<T>{r.data<T>(), r.ld, 1} : Operand2d<T>{r.data<T>(), 1, r.ld};
}

/// The product of operands that are all f32 or all f64.
template <class T>
void multiply_wide(Stream& s, Rows c, Accum accum, Rows a, Op op_a, Rows b, Op op_b) {
  const int64_t m = c.rows, n = c.cols, k = depth_of(a, op_a), ldc = c.ld;
  const Tiles tiles = choose_tiles(m, n, k, s.num_threads());
  const Operand2d<T> pa = operand<T>(a, op_a), pb = operand<T>(b, op_b);
  T* pc = c.data<T>();
  s.parallel(tiles.down * tiles.across, 1, [=](int64_t begin, int64_t) {
    const int64_t i = begin / tiles.across * tiles.rows, j = begin % tiles.across * tiles.cols;
    product_on_one_thread(std::min(tiles.rows, m - i), std::min(tiles.cols, n - j), k,
                          {pa.p + i * pa.row, pa.row, pa.col}, {pb.p + j * pb.col, pb.row, pb.col}, pc + i * ldc + j,
                          ldc, accum);
  });
}

void zero(Stream& s, Rows c) {
  const int64_t row = c.cols * size_of(c.dtype), stride = c.ld * size_of(c.dtype);
  char* p = reinterpret_cast<char*>(c.at);
  s.parallel(c.rows, kZeroGrain / c.cols, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::memset(p + r * stride, 0, static_cast<size_t>(row));
  });
}

Tensor push_panel(Stack& temp, DType dtype, int64_t rows, int64_t cols) {
  return is_narrow(dtype) ? temp.push(DType::f32, {rows, cols + kPadding}) : Tensor{};
}

/// Rows [i, i + rows) and columns [k, k + cols) of op(a), as it lies in memory; in f32, through the panel if narrow.
Rows block_of(const Rows& a, Op op, int64_t i, int64_t rows, int64_t k, int64_t cols) {
  return op == Op::none ? a.slice(i, i + rows).columns(k, cols) : a.slice(k, k + cols).columns(i, rows);
}

Rows panel_for(const Rows& block, const Tensor& panel) {
  return panel.present() ? Rows(panel).slice(0, block.rows).columns(0, block.cols) : block;
}

/// C is wide, A or B is not. B's panel stays while it serves several blocks of rows.
void multiply_widened(Stream& s, Rows c, Accum accum, Rows a, Op op_a, Rows b, Op op_b, const Panels& panels) {
  const int64_t depth = depth_of(a, op_a);
  for (int64_t j = 0; j < c.cols; j += kPanelCols) {
    const int64_t cols = std::min(kPanelCols, c.cols - j);
    for (int64_t i = 0; i < c.rows; i += kPanelRows) {
      const int64_t rows = std::min(kPanelRows, c.rows - i);
      for (int64_t k = 0; k < depth; k += kPanelDepth) {
        const int64_t deep = std::min(kPanelDepth, depth - k);
        const Rows from_a = block_of(a, op_a, i, rows, k, deep), from_b = block_of(b, op_b, k, deep, j, cols);
        const Rows wide_a = panel_for(from_a, panels.a), wide_b = panel_for(from_b, panels.b);
        if (panels.a.present()) convert(s, wide_a, from_a);
        if (panels.b.present() && (i == 0 || depth > kPanelDepth)) convert(s, wide_b, from_b);
        multiply_wide<float>(s, c.slice(i, i + rows).columns(j, cols), k == 0 ? accum : Accum::add, wide_a, op_a,
                             wide_b, op_b);
      }
    }
  }
}

}  // namespace

void check_product(Rows c, Rows a, Op op_a, Rows b, Op op_b) {
  const int64_t m = op_a == Op::none ? a.rows : a.cols, n = op_b == Op::none ? b.cols : b.rows;
  CHECK(c.rows == m && c.cols == n && depth_of(a, op_a) == (op_b == Op::none ? b.rows : b.cols) && c.ld >= c.cols &&
            a.ld >= a.cols && b.ld >= b.cols,
        "product of ({}, {}){} and ({}, {}){} into ({}, {})", a.rows, a.cols, op_a == Op::none ? "" : "^T", b.rows,
        b.cols, op_b == Op::none ? "" : "^T", c.rows, c.cols);
  const DType acc = acc_dtype(c.dtype);
  CHECK(acc_dtype(a.dtype) == acc && acc_dtype(b.dtype) == acc, "product of {} and {} into {}", name_of(a.dtype),
        name_of(b.dtype), name_of(c.dtype));
}

Panels push_panels(Stack& temp, Rows c, Rows a, Op op_a, Rows b, Op op_b) {
  const int64_t m = std::min(c.rows, kPanelRows), n = std::min(c.cols, kPanelCols),
                k = std::min(depth_of(a, op_a), kPanelDepth);
  return {.a = op_a == Op::none ? push_panel(temp, a.dtype, m, k) : push_panel(temp, a.dtype, k, m),
          .b = op_b == Op::none ? push_panel(temp, b.dtype, k, n) : push_panel(temp, b.dtype, n, k),
          .c = push_panel(temp, c.dtype, m, n)};
}

int64_t packing_bytes(int64_t m, int64_t n, int64_t k, DType dtype, int threads) {
  if (is_narrow(dtype)) {
    m = std::min(m, kPanelRows);
    n = std::min(n, kPanelCols);
    k = std::min(k, kPanelDepth);
  }
  const Tiles tiles = choose_tiles(m, n, k, threads);
  return tiles.down * tiles.across * packing_bytes_on_one_thread(tiles.rows, tiles.cols, k);
}

void multiply(Stream& s, Rows c, Accum accum, Rows a, Op op_a, Rows b, Op op_b, const Panels& panels) {
  if (c.rows == 0 || c.cols == 0) return;
  if (depth_of(a, op_a) == 0) {
    if (accum == Accum::overwrite) zero(s, c);
  } else if (is_narrow(c.dtype)) {
    multiply_narrow(s, c, a, op_a, b, op_b, panels, [&](Rows block, int64_t i, int64_t j) {
      if (accum == Accum::add) convert(s, block, c.slice(i, i + block.rows).columns(j, block.cols));
      return accum;
    });
  } else if (is_narrow(a.dtype) || is_narrow(b.dtype)) {
    multiply_widened(s, c, accum, a, op_a, b, op_b, panels);
  } else if (c.dtype == DType::f64) {
    multiply_wide<double>(s, c, accum, a, op_a, b, op_b);
  } else {
    multiply_wide<float>(s, c, accum, a, op_a, b, op_b);
  }
}

}  // namespace chiron
