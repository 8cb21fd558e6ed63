#include "ops/layernorm/layernorm.h"

#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(LayerNorm, Cases) { expect_cases(layernorm_cases()); }

TEST(LayerNorm, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(layernorm_cases()); }

/// The variance is that of the differences from the mean: a large common offset does not drown it.
TEST(LayerNorm, OffsetDoesNotDrownTheVariance) {
  ThreadPool pool(1);
  Stream s({}, pool);
  std::vector<float> x(64), y(64), w(64, 1), stat(2);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 4096 + (i % 2 ? 1.f : -1.f);
  auto tensor = [](std::vector<float>& v, Shape shape) {
    return Tensor{reinterpret_cast<uintptr_t>(v.data()), DType::f32, shape};
  };
  layernorm(s, tensor(y, {1, 64}), tensor(stat, {1, 2}), tensor(x, {1, 64}), tensor(w, {64}), {}, 1e-5f);
  EXPECT_EQ(stat[0], 4096);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], i % 2 ? 1 : -1, 1e-5);
}

}  // namespace
}  // namespace chiron
