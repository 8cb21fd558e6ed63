// What kernels are written in, on whatever device there is.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpu/kernel_testing.h"
#include "gpu/reduce.h"
#include "gpu/vec.h"

namespace chiron::gpu {
namespace {

constexpr int kThreads = 192;

struct GpuVocabulary : testing::Test {
  void SetUp() override {
    if (num_devices() == 0)
      GTEST_SKIP() << why_no_device();
    else
      lanes = traits(0).lanes;
  }
  int lanes = 0;
};

/// What one thread got from the other lanes.
struct Exchanged {
  int32_t from_next, from_partner, lane, warp;
  double from_last;
  uint64_t odd, all;
};

__global__ void __launch_bounds__(kThreads) exchange(Exchanged* out) {
  const int t = thread();
  Exchanged e;
  e.from_next = shuffle(t, (lane() + 1) % kLanes);
  e.from_partner = shuffle_xor(t, kLanes / 2 + 1);
  e.from_last = shuffle(t + 0.5, kLanes - 1);
  e.odd = ballot(t % 2 == 1);
  e.all = ballot(true);
  e.lane = lane();
  e.warp = warp();
  out[t] = e;
}

TEST_F(GpuVocabulary, LanesExchange) {
  DeviceArray<Exchanged> out{std::vector<Exchanged>(kThreads)};
  run_kernel({.kernel = "exchange", .threads = kThreads}, exchange, out.data());
  const uint64_t all = lanes == 64 ? ~uint64_t{0} : (uint64_t{1} << lanes) - 1;
  const auto& results = out.read();
  for (int t = 0; t < kThreads; ++t) {
    const Exchanged& e = results[static_cast<size_t>(t)];
    const int first = t / lanes * lanes, l = t % lanes;
    EXPECT_EQ(e.lane, l);
    EXPECT_EQ(e.warp, t / lanes);
    EXPECT_EQ(e.from_next, first + (l + 1) % lanes) << t;
    EXPECT_EQ(e.from_partner, first + (l ^ (lanes / 2 + 1))) << t;
    EXPECT_EQ(e.from_last, first + lanes - 1 + 0.5) << t;
    EXPECT_EQ(e.odd, all & 0xaaaaaaaaaaaaaaaau) << t;
    EXPECT_EQ(e.all, all) << t;
  }
}

struct Reduced {
  int32_t warp_sum;
  float warp_max, block_sum, block_max, team_sum, row_sum;
};

__global__ void __launch_bounds__(kThreads) reduce(Reduced* out, float nan_at) {
  SharedMemory memory;
  Team<false> block_team(memory);
  Team<true> warp_team(memory);
  const auto x = static_cast<float>(thread());
  Reduced r;
  r.warp_sum = warp_reduce(thread(), Sum{});
  r.warp_max = warp_reduce(x == nan_at ? std::numeric_limits<float>::quiet_NaN() : -x, Max{});
  r.block_sum = block_team.sum(x);
  r.block_max = block_team.max(x == nan_at ? std::numeric_limits<float>::quiet_NaN() : -x);
  r.team_sum = warp_team.sum(x);
  r.row_sum = block_team.sum(1);
  out[thread()] = r;
}

TEST_F(GpuVocabulary, WarpsAndBlocksReduce) {
  for (int nan_at : {-1, 70}) {
    DeviceArray<Reduced> out{std::vector<Reduced>(kThreads)};
    run_kernel({.kernel = "reduce", .threads = kThreads, .shared = kTeamShared}, reduce, out.data(),
               static_cast<float>(nan_at));
    const auto& results = out.read();
    for (int t = 0; t < kThreads; ++t) {
      const Reduced& r = results[static_cast<size_t>(t)];
      const int first = t / lanes * lanes, sum = lanes * first + lanes * (lanes - 1) / 2;
      EXPECT_EQ(r.warp_sum, sum);
      EXPECT_EQ(r.team_sum, static_cast<float>(sum));
      EXPECT_EQ(r.block_sum, static_cast<float>(kThreads * (kThreads - 1) / 2));
      EXPECT_EQ(r.row_sum, static_cast<float>(kThreads));
      if (nan_at >= 0 && nan_at / lanes == t / lanes)
        EXPECT_TRUE(std::isnan(r.warp_max)) << t;
      else
        EXPECT_EQ(r.warp_max, static_cast<float>(-first)) << t;
      if (nan_at >= 0)
        EXPECT_TRUE(std::isnan(r.block_max));
      else
        EXPECT_EQ(r.block_max, 0);
    }
  }
}

__global__ void __launch_bounds__(kThreads) count(int32_t* counter, uint32_t* tickets) {
  tickets[block() * num_threads() + thread()] = static_cast<uint32_t>(atomic_add(counter, 1));
}

TEST_F(GpuVocabulary, AtomicAddGivesEachValueOnce) {
  constexpr int kBlocks = 7;
  DeviceArray<int32_t> counter{std::vector<int32_t>{5}};
  DeviceArray<uint32_t> tickets{std::vector<uint32_t>(kBlocks * kThreads)};
  run_kernel({.kernel = "count", .blocks = kBlocks, .threads = kThreads}, count, counter.data(), tickets.data());
  EXPECT_EQ(counter.read()[0], 5 + kBlocks * kThreads);
  std::vector<bool> seen(kBlocks * kThreads);
  for (uint32_t t : tickets.read()) seen.at(t - 5) = true;
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(seen[i]) << i;
}

/// Reverses the pieces of 16 bytes of a block's part, of which the last has `tail` bytes, by way of two arrays.
__global__ void __launch_bounds__(kThreads) reverse(float* to, const float* from, int tail) {
  SharedMemory memory;
  Shared<char> pad = memory.take<char>(5);
  Shared<float> a = memory.take<float>(4 * kThreads);
  if (thread() == 0) pad[4] = 1;
  const int t = thread(), other = num_threads() - 1 - t;
  const float* part = from + block() * 4 * num_threads();
  copy_async(a + 4 * t, part + 4 * t, t == num_threads() - 1 ? tail : 16);
  copy_async_commit();
  copy_async_wait<0>();
  sync_block();
  store16(to + (block() * num_threads() + t) * 4, load16((a + 4 * other).data()));
}

TEST_F(GpuVocabulary, AsyncCopiesArrive) {
  constexpr int kFloats = 2 * 4 * kThreads;
  std::vector<float> from(kFloats);
  for (int i = 0; i < kFloats; ++i) from[static_cast<size_t>(i)] = static_cast<float>(i + 1);
  for (int tail : {0, 4, 12, 16}) {
    DeviceArray<float> in(from), out{std::vector<float>(kFloats, -1)};
    run_kernel({.kernel = "reverse",
                .blocks = 2,
                .threads = kThreads,
                .shared = shared_bytes<char>(5) + shared_bytes<float>(4 * kThreads)},
               reverse, out.data(), in.data(), tail);
    const auto& got = out.read();
    for (int b = 0; b < 2; ++b)
      for (int i = 0; i < 4 * kThreads; ++i) {
        const int source = (kThreads - 1 - i / 4) * 4 + i % 4;
        const bool there = source < 4 * (kThreads - 1) || 4 * (i % 4) < tail;
        EXPECT_EQ(got[static_cast<size_t>(b * 4 * kThreads + i)],
                  there ? static_cast<float>(b * 4 * kThreads + source + 1) : 0.0f)
            << i << " with a tail of " << tail;
      }
  }
}

/// Rounds by each of the three ways, and widens again.
template <class T>
__global__ void __launch_bounds__(kThreads) round_trip(T* a, T* b, T* c, float* wide, const float* from, int64_t n) {
  for (int64_t i = 2 * (block() * num_threads() + thread()); i < n; i += 2 * num_blocks() * num_threads()) {
    const uint32_t two = pack2<T>(from[i], from[i + 1]);
    c[i].bits = static_cast<uint16_t>(two);
    c[i + 1].bits = static_cast<uint16_t>(two >> 16);
    for (int64_t j = i; j < i + 2; ++j) {
      a[j] = T(from[j]);
      b[j] = from_float<T>(from[j]);
      wide[j] = to_float(a[j]);
    }
  }
}

template <class T>
void expect_conversions() {
  std::vector<float> from;
  for (uint32_t high = 0; high < 1 << 16; high += 3)
    for (uint32_t low : {0u, 0x7fffu, 0x8000u, 0x8001u, 0x1000u, 0x3000u}) {
      const auto x = std::bit_cast<float>(high << 16 | low);
      from.push_back(std::isnan(x) ? 0 : x);
    }
  from.push_back(std::numeric_limits<float>::quiet_NaN());
  if (from.size() % 2) from.push_back(1);
  const size_t n = from.size();
  DeviceArray<float> in(from), wide{std::vector<float>(n)};
  DeviceArray<T> a{std::vector<T>(n)}, b{std::vector<T>(n)}, c{std::vector<T>(n)};
  run_kernel({.kernel = "round_trip", .blocks = 8, .threads = kThreads}, round_trip<T>, a.data(), b.data(), c.data(),
             wide.data(), in.data(), static_cast<int64_t>(n));
  const auto &by_constructor = a.read(), &by_function = b.read(), &by_pack = c.read();
  const auto& widened = wide.read();
  for (size_t i = 0; i < n; ++i) {
    if (std::isnan(from[i])) {
      EXPECT_TRUE(std::isnan(float(by_constructor[i])) && std::isnan(float(by_function[i])) && std::isnan(widened[i]));
      continue;
    }
    const T want(from[i]);
    ASSERT_EQ(by_constructor[i].bits, want.bits) << from[i];
    ASSERT_EQ(by_function[i].bits, want.bits) << from[i];
    ASSERT_EQ(by_pack[i].bits, want.bits) << from[i];
    ASSERT_EQ(std::bit_cast<uint32_t>(widened[i]), std::bit_cast<uint32_t>(float(want))) << from[i];
  }
}

TEST_F(GpuVocabulary, Bf16ConvertsByTheSameBits) { expect_conversions<bf16>(); }
TEST_F(GpuVocabulary, F16ConvertsByTheSameBits) { expect_conversions<f16>(); }

constexpr int kFunctions = 11;

__global__ void __launch_bounds__(kThreads) evaluate(float* y, const float* x, int64_t n) {
  for (int64_t i = block() * num_threads() + thread(); i < n; i += num_blocks() * num_threads()) {
    const float v = x[i], positive = v < 0 ? -v : v;
    const float values[kFunctions] = {exp(v),  exp2(v), fast_exp2(v), log(positive), sqrt(positive),  rsqrt(positive),
                                      tanh(v), erf(v),  sin(v),       cos(v),        fma(v, v, -1.0f)};
    for (int f = 0; f < kFunctions; ++f) y[f * n + i] = values[f];
  }
}

TEST_F(GpuVocabulary, FunctionsAreWithinTwoUlp) {
  const char* names[kFunctions] = {"exp",  "exp2", "fast_exp2", "log", "sqrt", "rsqrt",
                                   "tanh", "erf",  "sin",       "cos", "fma"};
  std::vector<float> x;
  for (float v = 1e-6f; v < 80; v *= 1.013f) x.insert(x.end(), {v, -v});
  const size_t n = x.size();
  DeviceArray<float> in(x), out{std::vector<float>(kFunctions * n)};
  run_kernel({.kernel = "evaluate", .blocks = 4, .threads = kThreads}, evaluate, out.data(), in.data(),
             static_cast<int64_t>(n));
  const auto& y = out.read();
  for (size_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(x[i]), positive = std::abs(v);
    const double want[kFunctions] = {
        std::exp(v),  std::exp2(v), std::exp2(v), std::log(positive), std::sqrt(positive), 1 / std::sqrt(positive),
        std::tanh(v), std::erf(v),  std::sin(v),  std::cos(v),        std::fma(v, v, -1)};
    for (size_t f = 0; f < kFunctions; ++f) {
      const auto w = static_cast<float>(want[f]);
      const double ulp = static_cast<double>(std::nextafter(std::abs(w), std::numeric_limits<float>::infinity())) -
                         static_cast<double>(std::abs(w));
      EXPECT_LE(std::abs(static_cast<double>(y[f * n + i]) - want[f]), 2.5 * ulp) << names[f] << " of " << x[i];
    }
  }
}

/// Copies n elements in pieces of 16 bytes, what is beyond them as `fill`.
template <class T>
__global__ void __launch_bounds__(64) copy_pieces(T* to, float* beyond, const T* from, int64_t n) {
  const int64_t i = static_cast<int64_t>(thread()) * kVec<T>;
  const Floats<T> v = load(from + i, n - i, 7.0f);
  if (i < n) store(to + i, v, n - i);
  beyond[thread()] = v[kVec<T> - 1];
}

template <class T>
void expect_pieces() {
  constexpr int64_t kMost = 64 * kVec<T>;
  std::vector<T> from;
  for (int64_t i = 0; i < kMost + 8; ++i) from.push_back(T(static_cast<float>(i % 251)));
  for (int64_t n : {int64_t{1}, int64_t{kVec<T>}, int64_t{5 * kVec<T> + 3}, kMost}) {
    for (int64_t shift : {0, 1}) {
      DeviceArray<T> in(from), out{std::vector<T>(from.size(), T(-1.0f))};
      DeviceArray<float> beyond{std::vector<float>(64)};
      run_kernel({.kernel = "copy_pieces", .threads = 64}, copy_pieces<T>, out.data() + shift, beyond.data(),
                 static_cast<const T*>(in.data() + shift), n);
      const auto& got = out.read();
      const auto& last_of_piece = beyond.read();
      for (int64_t i = 0; i < static_cast<int64_t>(from.size()); ++i) {
        const bool inside = i >= shift && i < shift + n;
        ASSERT_EQ(float(got[static_cast<size_t>(i)]), inside ? float(from[static_cast<size_t>(i)]) : -1.0f) << i;
      }
      for (int64_t t = 0; t < 64; ++t) {
        const int64_t last = t * kVec<T> + kVec<T> - 1;
        EXPECT_EQ(last_of_piece[static_cast<size_t>(t)],
                  last < n ? float(from[static_cast<size_t>(last + shift)]) : 7.0f);
      }
    }
  }
}

TEST_F(GpuVocabulary, PiecesOfSixteenBytes) {
  expect_pieces<float>();
  expect_pieces<bf16>();
  expect_pieces<f16>();
}

}  // namespace
}  // namespace chiron::gpu
