#include "ops/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ops/op_case.h"

namespace chiron {
namespace {

constexpr int64_t kScratch = 16 << 20;

template <class T>
std::vector<T> normal(int64_t n, uint32_t seed) {
  std::vector<T> out;
  for (double x : random_normal(n, seed)) out.push_back(static_cast<T>(x));
  return out;
}

template <class T>
Tensor tensor_of(std::vector<T>& v, Shape shape) {
  return {reinterpret_cast<uintptr_t>(v.data()), dtype_of<T>(), shape};
}

struct Sizes {
  int64_t m, n, k;
  Op a, b;
};

// Large enough for a tile per thread, with sides that no tile divides.
const Sizes kSizes[] = {{517, 131, 300, Op::none, Op::transpose},
                        {131, 517, 300, Op::transpose, Op::none},
                        {260, 262, 777, Op::none, Op::none},
                        {2048, 96, 64, Op::none, Op::transpose}};

template <class T>
void expect_same_bits() {
  for (auto [m, n, k, op_a, op_b] : kSizes) {
    auto a = normal<T>(m * k, 1), b = normal<T>(n * k, 2), start = normal<T>(m * n, 3);
    const Tensor ta = tensor_of(a, op_a == Op::none ? Shape{m, k} : Shape{k, m});
    const Tensor tb = tensor_of(b, op_b == Op::none ? Shape{k, n} : Shape{n, k});
    for (Accum accum : {Accum::overwrite, Accum::add}) {
      std::vector<T> first;
      Stack temp({}, kScratch);
      auto expect_first = [&](const std::vector<T>& c, const std::string& how) {
        EXPECT_EQ(std::memcmp(c.data(), first.data(), c.size() * sizeof(T)), 0)
            << name_of(dtype_of<T>()) << " M" << m << " N" << n << " K" << k << " " << how;
      };
      for (int threads : {1, 2, 3, 4}) {
        ThreadPool pool(threads);
        Stream s({}, pool);
        auto c = start;
        gemm(s, tensor_of(c, {m, n}), accum, ta, op_a, tb, op_b, temp);
        if (threads == 1) first = c;
        expect_first(c, fmt::format("on {} threads", threads));
      }
      ThreadPool pool(2);
      Stream s({}, pool);
      auto c = start;
      for (int64_t begin = 0, end; begin < m; begin = end) {
        end = std::min(m, begin + 1 + begin / 2);  // 1, 1, 2, 3... rows
        gemm(s, Rows(tensor_of(c, {m, n})).slice(begin, end), accum,
             op_a == Op::none ? Rows(ta).slice(begin, end) : Rows(ta).columns(begin, end - begin), op_a, tb, op_b,
             temp);
      }
      expect_first(c, "cut by rows");
      c = start;
      for (int64_t begin = 0, end; begin < n; begin = end) {
        end = std::min(n, begin + 1 + begin / 2);
        gemm(s, Rows(tensor_of(c, {m, n})).columns(begin, end - begin), accum, ta, op_a,
             op_b == Op::none ? Rows(tb).columns(begin, end - begin) : Rows(tb).slice(begin, end), op_b, temp);
      }
      expect_first(c, "cut by columns");
    }
  }
}

TEST(Gemm, BitsDependNeitherOnThreadsNorOnCutsOfC) {
  expect_same_bits<float>();
  expect_same_bits<bf16>();
  expect_same_bits<double>();
}

TEST(Gemm, NarrowOperandsGiveTheBitsOfTheirWidenedCopies) {
  ThreadPool pool(2);
  Stream s({}, pool);
  Stack temp({}, kScratch);
  const int64_t m = 1100, n = 70, k = 1700;
  auto a = normal<bf16>(m * k, 1);
  auto b = normal<f16>(n * k, 2);
  std::vector<float> a32(a.begin(), a.end()), b32(b.begin(), b.end());
  auto c = normal<float>(m * n, 3), c32 = c;
  gemm(s, tensor_of(c, {m, n}), Accum::add, tensor_of(a, {k, m}), Op::transpose, tensor_of(b, {k, n}), Op::none, temp);
  gemm(s, tensor_of(c32, {m, n}), Accum::add, tensor_of(a32, {k, m}), Op::transpose, tensor_of(b32, {k, n}), Op::none,
       temp);
  EXPECT_EQ(std::memcmp(c.data(), c32.data(), c.size() * sizeof(float)), 0);
}

TEST(Gemm, ScratchIsBounded) {
  auto peak = [](DType dtype, int64_t m, int64_t n, int64_t k) {
    Stream s = Stream::dry({});
    Stack temp = Stack::dry();
    auto planned = [&](int64_t rows, int64_t cols) { return Tensor{uintptr_t{1} << 40, dtype, {rows, cols}}; };
    gemm(s, planned(m, n), Accum::overwrite, planned(m, k), Op::none, planned(n, k), Op::transpose, temp);
    return temp.peak();
  };
  EXPECT_EQ(peak(DType::f32, 100000, 4096, 4096), 0);
  EXPECT_LE(peak(DType::bf16, 10000000, 50257, 16384), 11 << 20);
  EXPECT_LE(peak(DType::bf16, 64, 64, 64), 64 << 10);
}

TEST(Gemm, RefusesOtherSizesAndKinds) {
  ThreadPool pool(1);
  Stream s({}, pool);
  Stack temp({}, 1 << 16);
  std::vector<float> a(6), b(6), c(4);
  std::vector<double> wide(6);
  Tensor tc = tensor_of(c, {2, 2}), ta = tensor_of(a, {2, 3});
  EXPECT_THROW(gemm(s, tc, Accum::add, ta, Op::none, tensor_of(b, {2, 3}), Op::none, temp), Bug);
  EXPECT_THROW(gemm(s, tc, Accum::add, ta, Op::transpose, tensor_of(b, {2, 3}), Op::transpose, temp), Bug);
  EXPECT_THROW(gemm(s, tc, Accum::add, ta, Op::none, tensor_of(wide, {2, 3}), Op::transpose, temp), Bug);
  gemm(s, tc, Accum::overwrite, ta, Op::none, tensor_of(b, {2, 3}), Op::transpose, temp);
  EXPECT_EQ(c, std::vector<float>(4, 0));
}

}  // namespace
}  // namespace chiron
