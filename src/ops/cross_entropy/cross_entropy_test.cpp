#include "ops/cross_entropy/cross_entropy.h"

#include <cmath>
#include <limits>

#include "core/device_testing.h"
#include "ops/op_case_test.h"

namespace chiron {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(CrossEntropy, Cases) { expect_cases(cross_entropy_cases()); }

TEST(CrossEntropy, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(cross_entropy_cases()); }

using CrossEntropyNumbers = OnDevice;
INSTANTIATE_TEST_SUITE_P(Cpu, CrossEntropyNumbers, testing::Values(kCpu));
INSTANTIATE_TEST_SUITE_P(Gpu, CrossEntropyNumbers, testing::Values(kGpu));

/// Losses of rows of logits, which are replaced by `scale` times their gradient; with columns cut at `cuts`, or at once
/// where there are none.
struct Result {
  std::vector<float> losses, gradient;
};
Result run(Device device, const std::vector<float>& logits, const std::vector<int32_t>& labels,
           std::vector<int64_t> cuts, float smoothing, float scale) {
  ThreadPool pool(2);
  Stream s(device, pool);
  auto rows = static_cast<int64_t>(labels.size()), vocab = static_cast<int64_t>(logits.size()) / rows;
  DeviceArray<float> x(s, logits), factor(s, {scale}), losses(s, std::vector<float>(labels.size(), -1));
  DeviceArray<int32_t> y(s, labels);
  const Rows all = x.tensor({rows, vocab});
  if (cuts.empty()) {
    Stack temp(device, 4096);
    cross_entropy(s, losses.tensor(), all, vocab, y.tensor(), factor.tensor(), {vocab, 0, smoothing}, temp);
    return {losses.read(), x.read()};
  }
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(vocab);
  auto num_parts = static_cast<int64_t>(cuts.size()) - 1;
  DeviceArray<float> memory(s, std::vector<float>(static_cast<size_t>(num_parts * rows * 4)));
  DeviceArray<float> stat(s, std::vector<float>(static_cast<size_t>(rows * 4)));
  Tensor parts = memory.tensor({num_parts, rows, 4}), whole = stat.tensor({rows, 4});
  auto columns = [&](int64_t p) { return all.columns(cuts[size_t(p)], cuts[size_t(p) + 1] - cuts[size_t(p)]); };
  auto shape = [&](int64_t p) { return CrossEntropyShape{vocab, cuts[size_t(p)], smoothing}; };
  for (int64_t p = 0; p < num_parts; ++p)
    cross_entropy_partial(s, parts.slice(p, p + 1).reshape({rows, 4}), columns(p), y.tensor(), shape(p));
  cross_entropy_combine(s, whole, parts);
  for (int64_t p = 0; p < num_parts; ++p)
    cross_entropy_finish(s, losses.tensor(), columns(p), columns(p).cols, y.tensor(), whole, factor.tensor(), shape(p));
  return {losses.read(), x.read()};
}

TEST_P(CrossEntropyNumbers, CutVocabularyEqualsTheWhole) {
  constexpr int64_t kRows = 7, kVocab = 150;
  auto normal = random_normal(kRows * kVocab, 1, 3);
  std::vector<float> logits(normal.begin(), normal.end());
  std::vector<int32_t> labels{0, 49, 50, kIgnore, 149, 75, 99};
  for (float smoothing : {0.f, 0.1f}) {
    auto whole = run(GetParam(), logits, labels, {}, smoothing, 0.7f);
    for (const auto& cuts : {std::vector<int64_t>{50}, {50, 100}, {1, 149}, {0}, {150}, {75, 75}}) {
      auto cut = run(GetParam(), logits, labels, cuts, smoothing, 0.7f);
      for (size_t i = 0; i < labels.size(); ++i) EXPECT_NEAR(cut.losses[i], whole.losses[i], 4e-6) << i;
      for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(cut.gradient[i], whole.gradient[i], 2e-7) << i;
    }
  }
}

/// A random mask of labels that do not count, and an upstream gradient that is not 1; rows of every kind of length.
TEST_P(CrossEntropyNumbers, MasksAndUpstreamGradients) {
  for (int64_t vocab : {5, 831, 4099}) {
    constexpr int64_t kRows = 13;
    const auto normal = random_normal(kRows * vocab, 3, 4), ids = random_ids(kRows, vocab, 4);
    const auto dice = random_ids(kRows, 2, 5);
    std::vector<float> logits(normal.begin(), normal.end());
    std::vector<int32_t> labels;
    for (size_t i = 0; i < kRows; ++i) labels.push_back(dice[i] == 0 ? kIgnore : static_cast<int32_t>(ids[i]));
    for (float scale : {1.f, -0.3f, 65536.f / 7}) {
      const auto r = run(GetParam(), logits, labels, {}, 0, scale);
      double error = 0, size = 0;
      for (size_t row = 0; row < kRows; ++row) {
        const float* x = logits.data() + row * static_cast<size_t>(vocab);
        double sum = 0;
        for (int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(x[v]));
        const bool counts = labels[row] != kIgnore;
        EXPECT_NEAR(r.losses[row], counts ? std::log(sum) - static_cast<double>(x[labels[row]]) : 0, 1e-5);
        for (int64_t v = 0; v < vocab; ++v) {
          const double p = std::exp(static_cast<double>(x[v])) / sum - (v == labels[row] ? 1 : 0);
          const double want = counts ? static_cast<double>(scale) * p : 0;
          const double got = static_cast<double>(r.gradient[row * static_cast<size_t>(vocab) + static_cast<size_t>(v)]);
          if (!counts) {
            ASSERT_EQ(got, 0);
          }
          error += (got - want) * (got - want);
          size += want * want;
        }
      }
      EXPECT_LT(std::sqrt(error / size), 1e-6) << vocab << " " << scale;
    }
  }
}

TEST_P(CrossEntropyNumbers, HugeLogitsDoNotOverflow) {
  for (float smoothing : {0.f, 0.1f}) {
    auto r = run(GetParam(), {1e4f, -1e4f, 9.999e3f, 1e38f, -1e38f, 0}, {2, 0}, {}, smoothing, 1);
    EXPECT_NEAR(r.losses[0], smoothing == 0 ? 1.3132617 : 1.3132617 * 0.9 + 0.1 * (20001.0 / 3 + 0.3132617), 1e-2);
    EXPECT_TRUE(std::isfinite(r.losses[1]));
    for (float g : r.gradient) EXPECT_TRUE(std::isfinite(g));
  }
  EXPECT_FLOAT_EQ(run(GetParam(), {1e4f, 1e4f}, {1}, {}, 0, 1).losses[0], std::log(2.f));
}

TEST_P(CrossEntropyNumbers, NanAndInfinityAreNeverANumber) {
  std::vector<float> finite(40);
  for (size_t i = 0; i < finite.size(); ++i) finite[i] = static_cast<float>(i % 7);
  for (float poison : {std::nanf(""), kInf})
    for (size_t at : {size_t{0}, size_t{15}, size_t{16}, size_t{39}})
      for (const auto& cuts : {std::vector<int64_t>{}, {20}}) {
        auto logits = finite;
        logits[at] = poison;
        for (int32_t label : {3, static_cast<int32_t>(at)})
          EXPECT_TRUE(std::isnan(run(GetParam(), logits, {label}, cuts, 0, 1).losses[0])) << poison << " at " << at;
      }
  EXPECT_TRUE(std::isnan(run(GetParam(), std::vector<float>(40, -kInf), {3}, {}, 0, 1).losses[0]));
}

/// A logit of -inf weighs nothing; the loss of a label there is infinite.
TEST_P(CrossEntropyNumbers, MinusInfinityIsProbabilityZero) {
  std::vector<float> logits(700, -kInf);
  logits[650] = 2;
  logits[699] = 2;
  for (const auto& cuts : {std::vector<int64_t>{}, {20, 660}}) {
    auto r = run(GetParam(), logits, {650}, cuts, 0, 1);
    EXPECT_FLOAT_EQ(r.losses[0], std::log(2.f));
    EXPECT_FLOAT_EQ(r.gradient[650], -0.5f);
    EXPECT_FLOAT_EQ(r.gradient[699], 0.5f);
    EXPECT_EQ(r.gradient[0], 0);
    EXPECT_EQ(run(GetParam(), logits, {5}, cuts, 0, 1).losses[0], kInf);
  }
}

/// An ignored row is zero whatever it holds.
TEST_P(CrossEntropyNumbers, IgnoredRowsCountForNothing) {
  auto r = run(GetParam(), {std::nanf(""), kInf, 1, 2}, {kIgnore, 0}, {}, 0.1f, 1);
  EXPECT_EQ(r.losses[0], 0);
  EXPECT_EQ(r.gradient[0], 0);
  EXPECT_EQ(r.gradient[1], 0);
  EXPECT_GT(r.losses[1], 0);
}

}  // namespace
}  // namespace chiron
