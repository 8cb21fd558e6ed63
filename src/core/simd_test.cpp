#include "core/simd.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/stream.h"

namespace chiron {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Calls f with every instruction set that this machine has, as Stream::parallel would.
template <class F>
void on_every_level(F f) {
  ThreadPool pool(1);
  Stream s({}, pool);
  auto body = [&](int64_t, int64_t) { f(); };
  s.parallel_at<CpuLevel::baseline>(1, 1, body);
  if (cpu_level() >= CpuLevel::avx2) s.parallel_at<CpuLevel::avx2>(1, 1, body);
  if (cpu_level() >= CpuLevel::avx512) s.parallel_at<CpuLevel::avx512>(1, 1, body);
}

/// Floats from all over: every 6007th bit pattern (all exponents, denormals, both signs), and the special ones.
const std::vector<float>& samples() {
  static const std::vector<float> all = [] {
    std::vector<float> out;
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 6007) {
      float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (std::isfinite(x)) out.push_back(x);
    }
    for (int i = -120000; i <= 120000; ++i) out.push_back(static_cast<float>(i) * 1e-3f);
    for (float x : {0.f, -0.f, 1e-45f, -1e-45f, 1e-40f, 0.875f, -0.875f, 88.7228317f, 88.7228394f, 88.722847f,
                    -87.33654f, -87.33655f, 3.4028235e38f, -3.4028235e38f, kInf, -kInf, std::nanf("")})
      out.push_back(x);
    while (out.size() % simd::kLanes) out.push_back(0);
    return out;
  }();
  return all;
}

/// Distance of `got` from `want` in units of the last place of a float near `want`.
double ulps(float got, double want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : kInf;
  auto nearest = static_cast<float>(want);
  if (got == nearest) return 0;
  if (std::isinf(nearest) || std::isinf(got)) return kInf;
  double spacing =
      static_cast<double>(std::nextafter(std::abs(nearest), kInf)) - std::abs(static_cast<double>(nearest));
  return std::abs(static_cast<double>(got) - want) / spacing;
}

struct Worst {
  double error = -1;
  float x = 0, got = 0;
};

template <class F, class R>
Worst worst_of(F vector_function, R reference) {
  const auto& x = samples();
  std::vector<float> y(x.size());
  Worst worst;
  on_every_level([&] {
    for (size_t i = 0; i < x.size(); i += simd::kLanes)
      simd::store(y.data() + i, vector_function(simd::load(x.data() + i)));
    for (size_t i = 0; i < x.size(); ++i) {
      double error = ulps(y[i], reference(static_cast<double>(x[i])));
      if (error > worst.error) worst = {error, x[i], y[i]};
    }
  });
  return worst;
}

TEST(Simd, ExpIsWithinTwoUlps) {
  auto w = worst_of([](simd::F32 x) { return simd::exp<float>(x); },
                    [](double x) {
                      double y = std::exp(x);
                      return y < static_cast<double>(std::numeric_limits<float>::min()) ? 0 : y;
                    });
  EXPECT_LE(w.error, 2) << "at " << w.x << ": " << w.got;
}

TEST(Simd, ErfIsWithinThreeUlps) {
  auto w = worst_of([](simd::F32 x) { return simd::erf<float>(x); }, [](double x) { return std::erf(x); });
  EXPECT_LE(w.error, 3) << "at " << w.x << ": " << w.got;
}

TEST(Simd, SigmoidIsWithinThreeUlpsInBothTails) {
  auto w = worst_of([](simd::F32 x) { return simd::sigmoid<float>(x); },
                    [](double x) { return x < -88.7228395 ? 0 : 1 / (1 + std::exp(-x)); });
  EXPECT_LE(w.error, 3) << "at " << w.x << ": " << w.got;
}

TEST(Simd, SqrtIsExact) {
  auto w = worst_of([](simd::F32 x) { return simd::sqrt<float>(x); }, [](double x) { return std::sqrt(x); });
  EXPECT_LE(w.error, 0.5) << "at " << w.x << ": " << w.got;
}

TEST(Simd, DoublesUseTheStandardLibrary) {
  simd::Vec<double> x;
  for (int i = 0; i < simd::kLanes; ++i) x[i] = 0.37 * i - 3;
  auto e = simd::exp<double>(x), f = simd::erf<double>(x), r = simd::sqrt<double>(x * x);
  for (int i = 0; i < simd::kLanes; ++i) {
    EXPECT_EQ(e[i], std::exp(x[i]));
    EXPECT_EQ(f[i], std::erf(x[i]));
    EXPECT_EQ(r[i], std::abs(x[i]));
  }
}

TEST(Simd, ForEachVectorVisitsEachElementOnce) {
  for (int64_t count : {0, 1, 15, 16, 17, 33, 64}) {
    std::vector<int> seen(static_cast<size_t>(count) + 16, 0);
    simd::for_each_vector(count, [&](int64_t i, auto n) {
      for (int64_t j = 0; j < n; ++j) ++seen[static_cast<size_t>(i + j)];
    });
    for (int64_t i = 0; i < count + 16; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i < count) << count << " " << i;
  }
}

TEST(Simd, StoreRoundsLikeTheScalarConstructor) {
  std::vector<bf16> y(samples().size());
  on_every_level([&] {
    const auto& x = samples();
    for (size_t i = 0; i < x.size(); i += simd::kLanes) simd::store(y.data() + i, simd::load(x.data() + i));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, bf16(x[i]).bits) << x[i];
  });
}

}  // namespace
}  // namespace chiron
