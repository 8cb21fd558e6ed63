#pragma once

#include "ops/gemm/gemm.h"

/// Products on the GPU: by the vendor's library where there is one and it is faster, else by kernels of our own.
namespace chiron {

/// C = op(A) op(B) + bias + addend. A and B have one dtype, C has it too, or f32. bias: (N), added to each row; addend:
/// (M, N), may be C itself; both absent or of C's dtype. Sizes are below 2^31.
struct Product {
  Rows c, a;
  Op op_a = Op::none;
  Rows b;
  Op op_b = Op::none;
  View bias = {};
  Rows addend = {};

  int64_t m() const { return c.rows; }
  int64_t n() const { return c.cols; }
  int64_t k() const { return op_a == Op::none ? a.cols : a.rows; }
};

/// Bytes that both an operand's address and the distance of its rows are multiples of; 16 is the most that matters.
inline int64_t alignment_of(const Rows& r) {
  const int64_t bits = static_cast<int64_t>(r.at) | r.ld * size_of(r.dtype) | 16;
  return bits & -bits;
}

/// How our own kernels cut a product: C into tiles of a block each, K into `splits` ranges whose sums are then added in
/// order.
struct Tiling {
  enum Cut : uint8_t { small, medium, large } cut = small;  ///< 64 x 64, 128 x 128; 128 x 256, 16-bit kinds only
  int splits = 1;
};

/// The tiling that should be fastest, by sizes and dtypes alone.
Tiling choose_tiling(const Product& p);
/// What it makes of K, and of the scratch: `splits` partial sums of C, each (M, ld_partial) in f32; none if splits
/// is 1.
struct Splits {
  int64_t k_per_split;  ///< a multiple of 64
  int splits;           ///< no more than the tiling says, none empty
  int64_t ld_partial;   ///< a multiple of 8
  int64_t bytes;
};
Splits split_depth(const Product& p, const Tiling& tiling);

/// Bytes of scratch for product(), whatever computes it: by sizes and dtypes alone.
int64_t product_scratch_bytes(const Product& p);
/// Takes them. Call it on dry streams too: those tell the stream's GemmChoices what there is to choose for.
Tensor push_product_scratch(Stream& s, const Product& p, Stack& temp);

namespace gpu {

/// Arguments checked, stream running. Deterministic: which way is taken is the stream's GemmChoices' to say; without
/// them, our own kernels'.
void product(Stream& s, const Product& p, Tensor scratch);

/// By our own kernels. Rows that are not 16-byte aligned take small tiles; so do devices take medium ones that lack the
/// shared memory for large ones.
void tiled_product(Stream& s, const Product& p, const Tiling& tiling, Tensor scratch);
/// The same for operands of T. Each kind has a .cu file of its own.
template <class T>
void tiled_product_of(Stream& s, const Product& p, const Tiling& tiling, Tensor scratch);

/// Uniform in [-1, 1): what products are timed on. Any GPU float kind.
void fill_random(Stream& s, Tensor t, uint32_t seed);

}  // namespace gpu
}  // namespace chiron
