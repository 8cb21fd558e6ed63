#include "ops/cross_entropy/cross_entropy.h"

#include <cmath>
#include <limits>

#include "ops/op_case_test.h"

namespace chiron {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(CrossEntropy, Cases) { expect_cases(cross_entropy_cases()); }

TEST(CrossEntropy, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(cross_entropy_cases()); }

template <class T>
Tensor tensor(std::vector<T>& v, Shape shape) {
  return {reinterpret_cast<uintptr_t>(v.data()), dtype_of<T>(), shape};
}

/// Losses of rows of logits, which are replaced by `scale` times their gradient; with columns cut at `cuts`.
struct Result {
  std::vector<float> losses, gradient;
};
Result run(std::vector<float> logits, std::vector<int32_t> labels, std::vector<int64_t> cuts, float smoothing,
           float scale) {
  ThreadPool pool(2);
  Stream s({}, pool);
  auto rows = static_cast<int64_t>(labels.size()), vocab = static_cast<int64_t>(logits.size()) / rows;
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(vocab);
  auto num_parts = static_cast<int64_t>(cuts.size()) - 1;
  std::vector<float> parts(static_cast<size_t>(num_parts * rows * 4)), stat(static_cast<size_t>(rows * 4)),
      factor{scale};
  Tensor all = tensor(parts, {num_parts, rows, 4}), x = tensor(logits, {rows, vocab}), y = tensor(labels, {rows});
  auto columns = [&](int64_t p) { return Rows(x).columns(cuts[size_t(p)], cuts[size_t(p) + 1] - cuts[size_t(p)]); };
  auto shape = [&](int64_t p) { return CrossEntropyShape{vocab, cuts[size_t(p)], smoothing}; };
  for (int64_t p = 0; p < num_parts; ++p)
    cross_entropy_partial(s, all.slice(p, p + 1).reshape({rows, 4}), columns(p), y, shape(p));
  cross_entropy_combine(s, tensor(stat, {rows, 4}), all);
  Result result;
  for (int64_t p = 0; p < num_parts; ++p) {
    result.losses.assign(labels.size(), -1);
    cross_entropy_finish(s, tensor(result.losses, {rows}), columns(p), columns(p).cols, y, tensor(stat, {rows, 4}),
                         tensor(factor, {1}), shape(p));
  }
  result.gradient = logits;
  return result;
}

TEST(CrossEntropy, CutVocabularyEqualsTheWhole) {
  constexpr int64_t kRows = 7, kVocab = 150;
  auto normal = random_normal(kRows * kVocab, 1, 3);
  std::vector<float> logits(normal.begin(), normal.end());
  std::vector<int32_t> labels{0, 49, 50, kIgnore, 149, 75, 99};
  for (float smoothing : {0.f, 0.1f}) {
    auto whole = run(logits, labels, {}, smoothing, 0.7f);
    for (const auto& cuts : {std::vector<int64_t>{50}, {50, 100}, {1, 149}, {0}, {150}, {75, 75}}) {
      auto cut = run(logits, labels, cuts, smoothing, 0.7f);
      for (size_t i = 0; i < labels.size(); ++i) EXPECT_NEAR(cut.losses[i], whole.losses[i], 4e-6) << i;
      for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(cut.gradient[i], whole.gradient[i], 2e-7) << i;
    }
  }
}

TEST(CrossEntropy, HugeLogitsDoNotOverflow) {
  for (float smoothing : {0.f, 0.1f}) {
    auto r = run({1e4f, -1e4f, 9.999e3f, 1e38f, -1e38f, 0}, {2, 0}, {}, smoothing, 1);
    EXPECT_NEAR(r.losses[0], smoothing == 0 ? 1.3132617 : 1.3132617 * 0.9 + 0.1 * (20001.0 / 3 + 0.3132617), 1e-2);
    EXPECT_TRUE(std::isfinite(r.losses[1]));
    for (float g : r.gradient) EXPECT_TRUE(std::isfinite(g));
  }
  EXPECT_FLOAT_EQ(run({1e4f, 1e4f}, {1}, {}, 0, 1).losses[0], std::log(2.f));
}

TEST(CrossEntropy, NanAndInfinityAreNeverANumber) {
  std::vector<float> finite(40);
  for (size_t i = 0; i < finite.size(); ++i) finite[i] = static_cast<float>(i % 7);
  for (float poison : {std::nanf(""), kInf})
    for (size_t at : {size_t{0}, size_t{15}, size_t{16}, size_t{39}})
      for (const auto& cuts : {std::vector<int64_t>{}, {20}}) {
        auto logits = finite;
        logits[at] = poison;
        for (int32_t label : {3, static_cast<int32_t>(at)})
          EXPECT_TRUE(std::isnan(run(logits, {label}, cuts, 0, 1).losses[0])) << poison << " at " << at;
      }
  EXPECT_TRUE(std::isnan(run(std::vector<float>(40, -kInf), {3}, {}, 0, 1).losses[0]));
}

/// A logit of -inf weighs nothing; the loss of a label there is infinite.
TEST(CrossEntropy, MinusInfinityIsProbabilityZero) {
  std::vector<float> logits(700, -kInf);
  logits[650] = 2;
  logits[699] = 2;
  for (const auto& cuts : {std::vector<int64_t>{}, {20, 660}}) {
    auto r = run(logits, {650}, cuts, 0, 1);
    EXPECT_FLOAT_EQ(r.losses[0], std::log(2.f));
    EXPECT_FLOAT_EQ(r.gradient[650], -0.5f);
    EXPECT_FLOAT_EQ(r.gradient[699], 0.5f);
    EXPECT_EQ(r.gradient[0], 0);
    EXPECT_EQ(run(logits, {5}, cuts, 0, 1).losses[0], kInf);
  }
}

/// An ignored row is zero whatever it holds.
TEST(CrossEntropy, IgnoredRowsCountForNothing) {
  auto r = run({std::nanf(""), kInf, 1, 2}, {kIgnore, 0}, {}, 0.1f, 1);
  EXPECT_EQ(r.losses[0], 0);
  EXPECT_EQ(r.gradient[0], 0);
  EXPECT_EQ(r.gradient[1], 0);
  EXPECT_GT(r.losses[1], 0);
}

}  // namespace
}  // namespace chiron
