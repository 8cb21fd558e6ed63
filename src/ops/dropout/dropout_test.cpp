#include "ops/dropout/dropout.h"

#include <cmath>
#include <numeric>

#include "core/gpu_testing.h"
#include "core/simd_philox.h"
#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(Dropout, Cases) { expect_cases(dropout_cases()); }

TEST(Dropout, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(dropout_cases()); }

TEST(GpuDropout, GivesTheBitsOfTheCpu) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream cpu({}, pool), gpu(kGpu, pool);
  for (const OpCase& c : dropout_cases())
    for (DType dtype : {DType::f32, DType::bf16, DType::f16})
      EXPECT_EQ(compare_streams(c, dtype, cpu, gpu), "") << c.op << " " << c.name << " " << name_of(dtype);
}

TEST(Dropout, SixteenPhiloxLanesAreSixteenCalls) {
  simd::PhiloxWords counter;
  for (int w = 0; w < 4; ++w)
    for (int i = 0; i < simd::kLanes; ++i) counter.word[w][i] = philox({1, 2, 3, 4}, {uint32_t(i), uint32_t(w)})[0];
  std::array<uint32_t, 2> key{0xa4093822u, 0x299f31d0u};
  auto got = simd::philox(counter, key);
  for (int i = 0; i < simd::kLanes; ++i) {
    auto want = philox({counter.word[0][i], counter.word[1][i], counter.word[2][i], counter.word[3][i]}, key);
    for (int w = 0; w < 4; ++w) EXPECT_EQ(got.word[w][i], want[static_cast<size_t>(w)]);
  }
}

/// Ones of (rows, cols) after dropout.
struct Draws {
  ThreadPool pool{2};
  Stream s{{}, pool};
  StepScalars step;
  int64_t rows, cols;
  std::vector<int32_t> index;

  Draws(int64_t r, int64_t c) : rows(r), cols(c), index(static_cast<size_t>(r)) {
    std::iota(index.begin(), index.end(), 1000);
  }
  std::vector<float> run(float p, int64_t first_row, int64_t num_rows, int64_t first, int64_t count, uint32_t op = 0) {
    std::vector<float> y(static_cast<size_t>(num_rows * count), 1);
    Tensor t{reinterpret_cast<uintptr_t>(y.data()), DType::f32, {num_rows, count}};
    View ids{reinterpret_cast<uintptr_t>(index.data() + first_row), DType::i32, {num_rows}};
    dropout(s, t, t, {}, {.p = p, .key = {&step, 1, op}, .index = ids, .first_column = first});
    return y;
  }
};

TEST(Dropout, CutsOfColumnsAndRowsDrawTheSame) {
  Draws d(9, 1100);
  auto whole = d.run(0.4f, 0, 9, 0, 1100);
  for (auto [first, end] : {std::pair<int64_t, int64_t>{0, 5}, {5, 22}, {22, 535}, {535, 1100}}) {
    auto part = d.run(0.4f, 0, 9, first, end - first);
    for (int64_t r = 0; r < 9; ++r)
      for (int64_t c = first; c < end; ++c)
        ASSERT_EQ(part[static_cast<size_t>(r * (end - first) + c - first)], whole[static_cast<size_t>(r * 1100 + c)])
            << r << " " << c;
  }
  auto rows = d.run(0.4f, 4, 5, 0, 1100);
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), whole.begin() + 4 * 1100));
}

TEST(Dropout, DropsAtTheRateAndKeepsTheMean) {
  Draws d(512, 1024);
  const double n = 512 * 1024;
  for (float p : {0.001f, 0.1f, 0.5f, 0.9f}) {
    auto y = d.run(p, 0, 512, 0, 1024);
    auto dropped = static_cast<double>(std::count(y.begin(), y.end(), 0.f));
    EXPECT_NEAR(dropped, n * p, 5 * std::sqrt(n * p * (1 - p))) << p;
    for (float v : y) ASSERT_TRUE(v == 0 || std::abs(v * (1 - p) - 1) < 1e-6) << v;
  }
}

TEST(Dropout, EachStepAndPlaceDrawsAnew) {
  Draws d(4, 64);
  auto first = d.run(0.5f, 0, 4, 0, 64), elsewhere = d.run(0.5f, 0, 4, 0, 64, 1);
  d.step.step = 1;
  auto later = d.run(0.5f, 0, 4, 0, 64);
  d.step.step = 0;
  EXPECT_EQ(first, d.run(0.5f, 0, 4, 0, 64));
  EXPECT_NE(first, elsewhere);
  EXPECT_NE(first, later);
}

TEST(Dropout, RefusesProbabilitiesThatAreNoOp) {
  Draws d(1, 4);
  for (float p : {0.f, 1.f, -0.1f, std::nanf("")}) EXPECT_THROW(d.run(p, 0, 1, 0, 4), Bug) << p;
}

}  // namespace
}  // namespace chiron
