#include "ops/attention/attention.h"

#include <cmath>
#include <limits>

#include "ops/attention/tiles.h"
#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(Attention, Cases) { expect_cases(attention_cases()); }

TEST(Attention, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(attention_cases()); }

/// Arrays of one f32 call, q, k and v random.
struct Call {
  AttentionShape shape;
  std::vector<float> q, k, v, o, lse;
  ThreadPool pool{1};
  Stream s{{}, pool};
  Stack temp{{}, 1 << 20};

  explicit Call(int64_t length, int64_t heads, int64_t dim) {
    shape.sequences = 1, shape.q_length = shape.k_length = length;
    shape.heads = shape.kv_heads = heads, shape.head_dim = dim, shape.scale = 0.3f;
    auto n = length * heads * dim;
    auto floats = [&](uint32_t seed) {
      auto x = random_normal(n, seed);
      return std::vector<float>(x.begin(), x.end());
    };
    q = floats(1), k = floats(2), v = floats(3);
    o.assign(static_cast<size_t>(n), 0);
    lse.assign(static_cast<size_t>(length * heads), 0);
  }
  Tensor host(std::vector<float>& x, int64_t cols) const {
    return {reinterpret_cast<uintptr_t>(x.data()), DType::f32, {static_cast<int64_t>(x.size()) / cols, cols}};
  }
  int64_t cols() const { return shape.heads * shape.head_dim; }
  void run(const AttentionDropout& dropout = {}) {
    attention(s, host(o, cols()), host(lse, shape.heads), host(q, cols()), host(k, cols()), host(v, cols()), shape,
              dropout, temp);
  }
};

TEST(Attention, TwoHalvesOfTheKeysMergeToOnePass) {
  constexpr int64_t kLength = 90, kFirst = 41;
  Call whole(kLength, 2, 32), low(kLength, 2, 32), high(kLength, 2, 32);
  whole.run();
  auto cut = [&](Call& c, int64_t begin, int64_t end) {
    for (auto* x : {&c.k, &c.v}) *x = std::vector<float>(x->begin() + begin * c.cols(), x->begin() + end * c.cols());
    c.shape.k_offset = begin;
    c.shape.k_length = end - begin;
    c.run();
  };
  cut(low, 0, kFirst);
  cut(high, kFirst, kLength);
  EXPECT_EQ(high.lse[0], -std::numeric_limits<float>::infinity());
  attention_merge(low.s, low.host(low.o, 64), low.host(low.lse, 2), low.host(high.o, 64), low.host(high.lse, 2), 2);
  for (size_t i = 0; i < whole.o.size(); ++i) ASSERT_NEAR(low.o[i], whole.o[i], 2e-6f) << i;
  for (size_t i = 0; i < whole.lse.size(); ++i) ASSERT_NEAR(low.lse[i], whole.lse[i], 2e-6f) << i;
}

TEST(Attention, DropsAsManyAsAsked) {
  // All scores equal and v = 1: a query's output is the share of keys kept, divided by 1 - p.
  constexpr int64_t kLength = 512;
  Call c(kLength, 2, 16);
  std::fill(c.q.begin(), c.q.end(), 0.0f);
  std::fill(c.v.begin(), c.v.end(), 1.0f);
  StepScalars scalars;
  std::vector<int32_t> index(kLength);
  for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int32_t>(i);
  AttentionDropout dropout;
  dropout.p = 0.3f;
  dropout.key = {&scalars, 1, 1};
  dropout.index = {reinterpret_cast<uintptr_t>(index.data()), DType::i32, {kLength}};
  c.run(dropout);
  double kept = 0, pairs = 0;
  for (int64_t t = 0; t < kLength; ++t)
    for (int64_t h = 0; h < 2; ++h) {
      double n = static_cast<double>(t + 1);
      kept += static_cast<double>(c.o[static_cast<size_t>((t * 2 + h) * 16)]) * 0.7 * n;
      pairs += n;
    }
  EXPECT_NEAR(kept / pairs, 0.7, 4 * std::sqrt(0.21 / pairs));
}

TEST(Attention, NanIsNotHidden) {
  for (bool in_key : {false, true}) {
    Call c(70, 1, 16);
    (in_key ? c.k : c.q)[40 * 16 + 3] = std::numeric_limits<float>::quiet_NaN();
    c.run();
    EXPECT_TRUE(std::isnan(c.o[40 * 16]) && std::isnan(c.lse[40]));
    EXPECT_FALSE(std::isnan(c.o[39 * 16]) || std::isnan(c.lse[39]));
    EXPECT_EQ(std::isnan(c.o[69 * 16]), in_key);
    std::vector<float> dq(c.q.size()), dk(c.q.size()), dv(c.q.size());
    attention_backward(c.s, c.host(dq, 16), c.host(dk, 16), c.host(dv, 16), c.host(c.v, 16), c.host(c.q, 16),
                       c.host(c.k, 16), c.host(c.v, 16), c.host(c.o, 16), c.host(c.lse, 1), c.shape, {}, c.temp);
    EXPECT_TRUE(std::isnan(dq[40 * 16]) && std::isnan(dk[0]) && std::isnan(dv[0]));
  }
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  Call good(8, 2, 16);
  EXPECT_NO_THROW(good.run());
  auto refused = [](auto&& change) {
    Call c(8, 2, 16);
    AttentionDropout dropout;
    change(c, dropout);
    EXPECT_THROW(c.run(dropout), Bug);
  };
  refused([](Call& c, AttentionDropout&) { c.shape.kv_heads = 3; });
  refused([](Call& c, AttentionDropout&) { c.shape.q_length = 9; });
  refused([](Call& c, AttentionDropout&) { c.shape.k_stride = 7; });
  refused([](Call& c, AttentionDropout&) { c.shape.window = -1; });
  refused([](Call& c, AttentionDropout&) { c.shape.starts = {256, DType::i32, {7}}; });
  refused([](Call&, AttentionDropout& d) { d.p = 0.1f; });
  refused([](Call&, AttentionDropout& d) { d.p = 1; });
  Call wide(8, 1, kMaxHeadDim + 2);
  EXPECT_THROW(wide.run(), Bug);
}

// The products are written for each width of a register; a machine runs only one of them inside the op.
template <class A, int W>
void expect_right_products() {
  constexpr int64_t kRows = 32, kDepth = 80, kMaxCols = 112;
  auto random = random_normal(kDepth * kMaxCols, 1);
  const std::vector<A> x(random.begin(), random.end());
  for (int64_t cols = 16; cols <= kMaxCols; cols += 16)
    for (bool transposed : {false, true}) {
      const int64_t row = transposed ? 1 : kDepth, step = transposed ? kRows : 1;
      std::vector<A> c(static_cast<size_t>(kRows * cols), A(1)), t(c.size());
      tiles::multiply<A, W>(c.data(), cols, x.data(), row, step, x.data(), cols, kRows, cols, kDepth, true);
      for (int64_t m = 0; m < kRows; ++m)
        for (int64_t n = 0; n < cols; ++n) {
          double sum = 1;
          for (int64_t k = 0; k < kDepth; ++k)
            sum += static_cast<double>(x[static_cast<size_t>(m * row + k * step)]) *
                   static_cast<double>(x[static_cast<size_t>(k * cols + n)]);
          ASSERT_NEAR(static_cast<double>(c[static_cast<size_t>(m * cols + n)]), sum, 1e-4) << W << " " << cols;
        }
      tiles::transpose<A, W>(t.data(), kRows, c.data(), cols, kRows, cols);
      for (int64_t m = 0; m < kRows; ++m)
        for (int64_t n = 0; n < cols; ++n)
          ASSERT_EQ(t[static_cast<size_t>(n * kRows + m)], c[static_cast<size_t>(m * cols + n)]);
    }
}

TEST(AttentionTiles, ProductsAndTransposesOfEveryWidth) {
  expect_right_products<float, 16>();
  expect_right_products<float, 8>();
  expect_right_products<float, 4>();
  expect_right_products<double, 2>();
}

}  // namespace
}  // namespace chiron
