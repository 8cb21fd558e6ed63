#include <gtest/gtest.h>

#include <algorithm>

#include "core/gpu_testing.h"
#include "ops/gemm/gemm_choices.h"

namespace chiron {
namespace {

struct ProductShape {
  const char* name;
  int64_t m, n, k;
  Op a, b;
  bool bias, add, wide;
};

// A large square, and the products of a step of GPT-2 124M on 65,536 tokens, its head in 8 parts.
constexpr Op kN = Op::none, kT = Op::transpose;
constexpr ProductShape kShapes[] = {
    {"8192 x 8192 x 8192", 8192, 8192, 8192, kN, kT, false, false, false},
    {"qkv forward", 65536, 2304, 768, kN, kT, true, false, false},
    {"proj forward", 65536, 768, 768, kN, kT, true, true, false},
    {"fc forward", 65536, 3072, 768, kN, kT, true, false, false},
    {"fc2 forward", 65536, 768, 3072, kN, kT, true, true, false},
    {"qkv dgrad", 65536, 768, 2304, kN, kN, false, false, false},
    {"fc dgrad", 65536, 768, 3072, kN, kN, false, false, false},
    {"fc2 dgrad", 65536, 3072, 768, kN, kN, false, false, false},
    {"qkv wgrad", 2304, 768, 65536, kT, kN, false, true, true},
    {"proj wgrad", 768, 768, 65536, kT, kN, false, true, true},
    {"fc wgrad", 3072, 768, 65536, kT, kN, false, true, true},
    {"fc2 wgrad", 768, 3072, 65536, kT, kN, false, true, true},
    {"head forward", 8192, 50304, 768, kN, kT, false, false, false},
    {"head dgrad", 8192, 768, 50304, kN, kN, false, false, false},
    {"head wgrad", 50304, 768, 8192, kT, kN, false, true, true},
};

/// Median seconds of a call.
template <class F>
double time(Stream& s, F&& call) {
  constexpr int kRuns = 15;
  std::vector<double> times;
  Event begin(s.device()), end(s.device());
  for (int i = 0; i < kRuns + 3; ++i) {
    s.record(begin);
    call();
    s.record(end);
    if (i >= 3) times.push_back(end.seconds_since(begin));
  }
  std::ranges::nth_element(times, times.begin() + kRuns / 2);
  return times[kRuns / 2];
}

/// The square reaches what is promised of our own kernels; a table shows all of them beside the vendor's library.
TEST(LongGpuGemm, OwnProductsReachTheirSpeed) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  if (s.traits().target == "emulated") GTEST_SKIP() << "the emulator has no speed";
  GemmChoices guessed(kGpu), tuned(kGpu);
  fmt::print("{}, {}: TFLOP/s in bf16, by our own kernels / the library's first guess / the fastest\n", s.traits().name,
             guessed.library());
  for (const ProductShape& z : kShapes) {
    std::vector<Buffer> memory;
    auto rows = [&](int64_t m, int64_t n, Op op, DType dtype) {
      if (op == kT) std::swap(m, n);
      const Tensor t{memory.emplace_back(s.device(), m * n * size_of(dtype)).at(), dtype, {m, n}};
      if constexpr (gpu::kBuilt) gpu::fill_random(s, t, static_cast<uint32_t>(memory.size()));
      return Rows(t);
    };
    const DType out = z.wide ? DType::f32 : DType::bf16;
    Product p{rows(z.m, z.n, kN, out), rows(z.m, z.k, z.a, DType::bf16), z.a, rows(z.k, z.n, z.b, DType::bf16), z.b};
    if (z.bias) p.bias = {rows(1, z.n, kN, out).at, out, {z.n}};
    if (z.add) p.addend = p.c;
    const Tensor scratch{
        memory.emplace_back(s.device(), product_scratch_bytes(p)).at(), DType::u8, {product_scratch_bytes(p)}};
    tuned.note(p, false);
    tuned.tune(s);
    auto speed = [&](GemmChoices* choices) {
      s.set_gemm_choices(choices);
      return 2e-12 * static_cast<double>(z.m * z.n * z.k) / time(s, [&] { gpu::product(s, p, scratch); });
    };
    const double own = speed(nullptr), guess = speed(&guessed), fastest = speed(&tuned);
    const Tiling tiling = choose_tiling(p);
    fmt::print("{:20} {:6.0f} {:6.0f} {:6.0f}   (own: cut {}, {} splits; fastest: {})\n", z.name, own, guess, fastest,
               static_cast<int>(tiling.cut), tiling.splits, tuned.find(p, false) ? "library" : "own");
    if (&z == kShapes && s.traits().target == "sm_90") {
      EXPECT_GE(own, 250);
    }
  }
}

}  // namespace
}  // namespace chiron
