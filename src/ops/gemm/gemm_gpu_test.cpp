#include "ops/gemm/gemm_gpu.h"

#include <gtest/gtest.h>

#include "core/gpu_testing.h"
#include "ops/gemm/gemm_testing.h"

namespace chiron {
namespace {

void expect_product(Stream& s, const ProductNumbers::Sizes& z, DType dtype, DType out, const Tiling& tiling) {
  ProductNumbers numbers(s, z, dtype, out);
  Stack temp(s.device(), std::max<int64_t>(split_depth(numbers.product(), tiling).bytes, 1) + Stack::kAlign);
  gpu::tiled_product(s, numbers.product(), tiling,
                     temp.push(DType::u8, {split_depth(numbers.product(), tiling).bytes}));
  EXPECT_LE(numbers.error(), product_tolerance(out))
      << "M" << z.m << " N" << z.n << " K" << z.k << (z.a == Op::none ? " n" : " t") << (z.b == Op::none ? "n" : "t")
      << " of " << name_of(dtype) << " into " << name_of(out) << ", cut " << tiling.cut << ", splits " << tiling.splits;
}

TEST(GpuGemm, TilesOfEachSizeAndEachTransposition) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  for (Op a : {Op::none, Op::transpose})
    for (Op b : {Op::none, Op::transpose}) {
      expect_product(s, {150, 73, 91, a, b, true, ProductNumbers::Sizes::same}, DType::f32, DType::f32,
                     {Tiling::small, 1});
      expect_product(s, {70, 200, 75, a, b}, DType::bf16, DType::f32, {Tiling::small, 1});
      expect_product(s, {131, 140, 37, a, b}, DType::f32, DType::f32, {Tiling::medium, 1});
      expect_product(s, {131, 140, 75, a, b, true, ProductNumbers::Sizes::apart}, DType::f16, DType::f16,
                     {Tiling::medium, 1});
      expect_product(s, {150, 270, 150, a, b, false, ProductNumbers::Sizes::same}, DType::bf16, DType::bf16,
                     {Tiling::large, 1});
    }
  expect_product(s, {1100, 33, 20, Op::none, Op::none}, DType::bf16, DType::bf16, {Tiling::medium, 1});  // bands
  expect_product(s, {20, 20, 0, Op::none, Op::none, true}, DType::bf16, DType::bf16, {Tiling::small, 1});
}

TEST(GpuGemm, SplitsOfKAreAddedUp) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  for (int splits : {2, 3, 7})
    for (DType out : {DType::f32, DType::bf16})
      expect_product(s, {43, 67, 400, Op::transpose, Op::none, true, ProductNumbers::Sizes::same}, DType::bf16, out,
                     {Tiling::small, splits});
  expect_product(s, {130, 67, 300, Op::none, Op::none, false, ProductNumbers::Sizes::apart}, DType::f32, DType::f32,
                 {Tiling::medium, 2});
}

TEST(GemmTiling, FillsTheDeviceAndBoundsItsScratch) {
  auto tiling_of = [](int64_t m, int64_t n, int64_t k, DType dtype, DType out) {
    const Rows c(Tensor{1, out, {m, n}}), a(Tensor{1, dtype, {m, k}}), b(Tensor{1, dtype, {n, k}});
    const Product p{c, a, Op::none, b, Op::transpose};
    const Tiling tiling = choose_tiling(p);
    EXPECT_LE(split_depth(p, tiling).bytes, int64_t{64} << 20);
    return tiling;
  };
  const Tiling square = tiling_of(8192, 8192, 8192, DType::bf16, DType::bf16);
  EXPECT_EQ(square.cut, Tiling::large);
  EXPECT_EQ(square.splits, 1);
  EXPECT_GT(tiling_of(768, 768, 65536, DType::bf16, DType::f32).splits, 4);
  EXPECT_EQ(tiling_of(8192, 8192, 8192, DType::f32, DType::f32).cut, Tiling::medium);
  EXPECT_EQ(tiling_of(1, 1, 1, DType::bf16, DType::bf16).splits, 1);
  tiling_of(1, 50304, 768, DType::bf16, DType::bf16);
  tiling_of(1, 768, 1 << 20, DType::bf16, DType::bf16);
}

}  // namespace
}  // namespace chiron
