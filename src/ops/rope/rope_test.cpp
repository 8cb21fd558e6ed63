#include "ops/rope/rope.h"

#include <cmath>

#include "ops/op_case_test.h"

namespace chiron {
namespace {

Tensor host(std::vector<float>& v) {
  return {reinterpret_cast<uintptr_t>(v.data()), DType::f32, {static_cast<int64_t>(v.size())}};
}

TEST(Rope, Cases) { expect_cases(rope_cases()); }

TEST(Rope, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(rope_cases()); }

TEST(Rope, EveryPositionIsRightToOneMillionth) {
  ThreadPool pool(2);
  Stream s({}, pool);
  constexpr int64_t kRows = 131073;
  std::vector<float> freq{1.0f, 0.7498942f, 1e-4f}, x(kRows * 6);
  std::vector<int32_t> positions(kRows);
  for (int64_t t = 0; t < kRows; ++t) {
    positions[static_cast<size_t>(t)] = static_cast<int32_t>(t);
    for (int64_t i = 0; i < 3; ++i) x[static_cast<size_t>(t * 6 + i)] = 1;
  }
  rope(s, host(x).reshape({kRows, 6}), {reinterpret_cast<uintptr_t>(positions.data()), DType::i32, {kRows}}, host(freq),
       1, false);
  double worst = 0;
  for (int64_t t = 0; t < kRows; ++t)
    for (int64_t i = 0; i < 3; ++i) {
      double angle = static_cast<double>(t) * static_cast<double>(freq[static_cast<size_t>(i)]);
      worst = std::fmax(worst, std::abs(static_cast<double>(x[static_cast<size_t>(t * 6 + i)]) - std::cos(angle)));
      worst = std::fmax(worst, std::abs(static_cast<double>(x[static_cast<size_t>(t * 6 + 3 + i)]) - std::sin(angle)));
    }
  EXPECT_LT(worst, 1e-7);
}

TEST(Rope, RefusesOtherShapesAndKinds) {
  Stream s = Stream::dry({});
  Tensor x{256, DType::f32, {4, 24}}, positions{256, DType::i32, {4}}, freq{256, DType::f32, {4}};
  EXPECT_NO_THROW(rope(s, x, positions, freq, 3, false));
  EXPECT_THROW(rope(s, x, positions, freq, 2, false), Bug);
  EXPECT_THROW(rope(s, x, positions.slice(0, 3), freq, 3, false), Bug);
  positions.dtype = DType::f32;
  EXPECT_THROW(rope(s, x, positions, freq, 3, false), Bug);
}

TEST(RopeFrequencies, PlainAndLinear) {
  std::vector<float> plain(4), linear(4);
  rope_frequencies(host(plain), 10000, {});
  rope_frequencies(host(linear), 10000, {.type = RopeScaling::linear, .factor = 4});
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(plain[i], std::pow(10.0f, -static_cast<float>(i)));
    EXPECT_FLOAT_EQ(linear[i], std::pow(10.0f, -static_cast<float>(i)) / 4);
  }
}

TEST(RopeFrequencies, Llama3KeepsShortWavesAndStretchesLongOnes) {
  constexpr int64_t kHalf = 64;
  std::vector<float> plain(kHalf), scaled(kHalf);
  RopeScaling scaling{.type = RopeScaling::llama3,
                      .factor = 8,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_max_seq_len = 8192};
  rope_frequencies(host(plain), 500000, {});
  rope_frequencies(host(scaled), 500000, scaling);
  int kept = 0, stretched = 0, between = 0;
  for (size_t i = 0; i < kHalf; ++i) {
    const double f = static_cast<double>(plain[i]), wave = 2 * 3.14159265358979 / f;
    if (wave < 8192.0 / 4) {
      EXPECT_FLOAT_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wave > 8192.0) {
      EXPECT_FLOAT_EQ(scaled[i], plain[i] / 8);
      ++stretched;
    } else {
      double smooth = (8192.0 / wave - 1) / 3;
      EXPECT_NEAR(static_cast<double>(scaled[i]), (1 - smooth) * f / 8 + smooth * f, f * 1e-6);
      ++between;
    }
  }
  EXPECT_TRUE(kept > 0 && stretched > 0 && between > 0);
}

TEST(RopeFrequencies, RefusesRulesThatCannotBe) {
  std::vector<float> out(4);
  EXPECT_THROW(rope_frequencies(host(out), 10000, {.type = RopeScaling::linear, .factor = 0}), Bug);
  EXPECT_THROW(rope_frequencies(host(out), 10000, {.type = RopeScaling::llama3, .factor = 8}), Bug);
}

}  // namespace
}  // namespace chiron
