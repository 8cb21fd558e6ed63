#include "ops/cast/cast.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/gpu_testing.h"
#include "ops/op_case_test.h"

namespace chiron {
namespace {

template <class T>
Tensor tensor_of(std::vector<T>& v) {
  return {reinterpret_cast<uintptr_t>(v.data()), dtype_of<T>(), {static_cast<int64_t>(v.size())}};
}

TEST(Cast, Cases) { expect_cases(cast_cases()); }

TEST(Cast, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(cast_cases()); }

template <class From, class To>
void expect_pair() {
  ThreadPool pool(2);
  Stream s({}, pool);
  for (size_t n : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{37}, size_t{70001}}) {
    auto values = random_normal(static_cast<int64_t>(n), 9, 5);
    if (n >= 37) {
      values[3] = std::numeric_limits<double>::infinity();
      values[17] = -std::numeric_limits<double>::infinity();
      values[33] = 1e30;  // infinity in f16
      values[34] = 3e-8;  // below the normal numbers of f16
    }
    std::vector<From> from;
    for (double x : values) from.push_back(static_cast<From>(x));
    std::vector<To> to(n, To(77.0f));
    cast(s, tensor_of(to), tensor_of(from));
    for (size_t i = 0; i < n; ++i) {
      // What the scalar conversions of core give. Values that came from 16 or 32 bits never need two roundings.
      bool twice = std::is_same_v<From, double> && sizeof(To) == 2;
      if (twice && static_cast<double>(static_cast<float>(from[i])) != static_cast<double>(from[i])) {
        double x = static_cast<double>(from[i]), got = static_cast<double>(to[i]);
        ASSERT_TRUE(got == x || std::isinf(got) || std::abs(got - x) <= std::abs(x) * 0x1p-8 + 0x1p-25) << i;
      } else {
        ASSERT_EQ(static_cast<double>(to[i]), static_cast<double>(static_cast<To>(from[i]))) << i << " of " << n;
      }
    }
  }
}

template <class From>
void expect_from() {
  expect_pair<From, float>();
  expect_pair<From, double>();
  expect_pair<From, bf16>();
  expect_pair<From, f16>();
}

TEST(Cast, EveryPairOfKinds) {
  expect_from<float>();
  expect_from<double>();
  expect_from<bf16>();
  expect_from<f16>();
}

TEST(Cast, EveryF16AndItsNeighbours) {
  ThreadPool pool(2);
  Stream s({}, pool);
  std::vector<f16> all(1 << 16), back(all.size());
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  cast(s, tensor_of(wide), tensor_of(all));
  for (size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(static_cast<float>(all[i]))) << i;
  // Every bit pattern around the values, and around the halves between them.
  for (uint32_t offset : {0u, 1u, ~0u, 0xfffu, 0x1000u, 0x1001u}) {
    std::vector<float> near(wide.size());
    for (size_t i = 0; i < wide.size(); ++i) near[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(wide[i]) + offset);
    cast(s, tensor_of(back), tensor_of(near));
    for (size_t i = 0; i < near.size(); ++i) ASSERT_EQ(back[i].bits, f16(near[i]).bits) << i << " offset " << offset;
  }
}

template <class From, class To>
void expect_gpu_pair() {
  const auto values = random_normal(1037, 9, 5);
  std::vector<From> from;
  for (double x : values) from.push_back(From(static_cast<float>(x)));
  from[3] = From(std::numeric_limits<float>::infinity());
  from[4] = From(1e30f);
  from[5] = From(-3e-8f);
  from[6] = From(std::numeric_limits<float>::quiet_NaN());
  std::vector<To> to(from.size());
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  Stack memory(kGpu, 16 << 10);
  const Tensor in = memory.push(dtype_of<From>(), {std::ssize(from)}), out = memory.push(dtype_of<To>(), in.shape);
  s.upload(in, from.data());
  cast(s, out, in);
  s.download(to.data(), out);
  for (size_t i = 0; i < from.size(); ++i) {
    const To want(static_cast<float>(from[i]));
    if (i == 6)
      EXPECT_TRUE(std::isnan(static_cast<float>(to[i])));
    else
      ASSERT_EQ(static_cast<float>(to[i]), static_cast<float>(want)) << i;
  }
}

TEST(GpuCast, EveryPairOfKinds) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  auto expect_from = []<class From>() {
    expect_gpu_pair<From, float>();
    expect_gpu_pair<From, bf16>();
    expect_gpu_pair<From, f16>();
  };
  expect_from.operator()<float>();
  expect_from.operator()<bf16>();
  expect_from.operator()<f16>();
}

TEST(Cast, NanStaysNan) {
  ThreadPool pool(1);
  Stream s({}, pool);
  std::vector<float> from(40, std::numeric_limits<float>::quiet_NaN());
  std::vector<double> from64(40, std::numeric_limits<double>::quiet_NaN());
  std::vector<bf16> to(40);
  std::vector<f16> half(40);
  cast(s, tensor_of(to), tensor_of(from));
  cast(s, tensor_of(half), tensor_of(from));
  for (size_t i = 0; i < 40; ++i) EXPECT_TRUE(std::isnan(static_cast<float>(to[i])) && std::isnan(float(half[i])));
  cast(s, tensor_of(to), tensor_of(from64));
  for (bf16 x : to) EXPECT_TRUE(std::isnan(static_cast<float>(x)));
}

TEST(Cast, RoundsOnceAndTiesToEven) {
  ThreadPool pool(1);
  Stream s({}, pool);
  // In bf16 the neighbours of 1 + 2^-8 are 1 (even) and 1 + 2^-7; those of 1 + 3 * 2^-8 are 1 + 2^-7 and 1 + 2^-6
  // (even).
  std::vector<double> from = {
      1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-40, -1 - 0x1p-8 - 0x1p-40, 1 + 3 * 0x1p-8 - 0x1p-40, 1e-50, 1e300};
  std::vector<float> want = {
      1, 1 + 0x1p-6f, 1 + 0x1p-7f, -1 - 0x1p-7f, 1 + 0x1p-7f, 0, std::numeric_limits<float>::infinity()};
  std::vector<bf16> to(from.size());
  cast(s, tensor_of(to), tensor_of(from));
  for (size_t i = 0; i < to.size(); ++i) EXPECT_EQ(static_cast<float>(to[i]), want[i]) << i;
}

TEST(Cast, RefusesOtherShapes) {
  ThreadPool pool(1);
  Stream s({}, pool);
  std::vector<float> a(4), b(5);
  EXPECT_THROW(cast(s, tensor_of(a), tensor_of(b)), Bug);
}

}  // namespace
}  // namespace chiron
