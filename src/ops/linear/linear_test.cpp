#include "ops/linear/linear.h"

#include <cstring>
#include <vector>

#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(Linear, Cases) { expect_cases(linear_cases()); }

TEST(Linear, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(linear_cases()); }

template <class T>
std::vector<T> normal(int64_t n, uint32_t seed) {
  std::vector<T> out;
  for (double x : random_normal(n, seed)) out.push_back(static_cast<T>(static_cast<float>(x)));
  return out;
}

template <class T>
Tensor tensor_of(std::vector<T>& v, Shape shape) {
  return {reinterpret_cast<uintptr_t>(v.data()), dtype_of<T>(), shape};
}

std::vector<float> widened(const std::vector<bf16>& v) { return {v.begin(), v.end()}; }

TEST(Linear, NarrowKindsAreRoundedOnce) {
  ThreadPool pool(2);
  Stream s({}, pool);
  const int64_t in = 900, out = 70;
  for (int64_t tokens : {int64_t{3}, int64_t{50}}) {
    auto x = normal<bf16>(tokens * in, 1), w = normal<bf16>(out * in, 2), bias = normal<bf16>(out, 3),
         y = normal<bf16>(tokens * out, 4);
    auto x32 = widened(x), w32 = widened(w), bias32 = widened(bias), y32 = widened(y);
    Stack temp({}, 32 << 20);
    linear(s, tensor_of(y32, {tokens, out}), tensor_of(x32, {tokens, in}), tensor_of(w32, {out, in}),
           tensor_of(bias32, {out}), tensor_of(y32, {tokens, out}), temp);
    linear(s, tensor_of(y, {tokens, out}), tensor_of(x, {tokens, in}), tensor_of(w, {out, in}), tensor_of(bias, {out}),
           tensor_of(y, {tokens, out}), temp);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i].bits, bf16(y32[i]).bits) << i;
  }
}

TEST(Linear, ARowOfAFewHasTheBitsOfTheRowAlone) {
  ThreadPool pool(2);
  Stream s({}, pool);
  const int64_t in = 333, out = 257;
  Stack temp({}, 1 << 20);
  auto x = normal<float>(4 * in, 1), w = normal<float>(out * in, 2);
  std::vector<float> all(static_cast<size_t>(4 * out)), few(all.size());
  for (int64_t t = 0; t < 4; ++t)
    linear(s, tensor_of(all, {4, out}).slice(t, t + 1), tensor_of(x, {4, in}).slice(t, t + 1), tensor_of(w, {out, in}),
           {}, {}, temp);
  for (int64_t rows = 2; rows <= 4; ++rows) {
    linear(s, tensor_of(few, {4, out}).slice(0, rows), tensor_of(x, {4, in}).slice(0, rows), tensor_of(w, {out, in}),
           {}, {}, temp);
    EXPECT_EQ(std::memcmp(all.data(), few.data(), static_cast<size_t>(rows * out) * sizeof(float)), 0) << rows;
  }
}

TEST(Linear, RefusesOtherSizes) {
  ThreadPool pool(1);
  Stream s({}, pool);
  Stack temp({}, 1 << 16);
  std::vector<float> x(6), w(8), y(4), b(3);
  Tensor tx = tensor_of(x, {2, 3}), tw = tensor_of(w, {2, 4}), ty = tensor_of(y, {2, 2});
  EXPECT_THROW(linear(s, ty, tx, tw, {}, {}, temp), Bug);
  Tensor fits = tensor_of(w, {8}).slice(0, 6).reshape({2, 3});
  linear(s, ty, tx, fits, {}, {}, temp);
  EXPECT_THROW(linear(s, ty, tx, fits, tensor_of(b, {3}), {}, temp), Bug);
  EXPECT_THROW(linear(s, ty, tx, fits, {}, tensor_of(b, {3}), temp), Bug);
  EXPECT_THROW(linear_backward_input(s, ty, Accum::add, tx, tw, temp), Bug);
  EXPECT_THROW(linear_backward_weight(s, ty, Accum::add, tx, ty, temp), Bug);
  EXPECT_THROW(linear_backward_bias(s, tensor_of(y, {4}), Accum::add, tx, temp), Bug);
}

}  // namespace
}  // namespace chiron
