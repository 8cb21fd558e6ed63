#include "ops/softmax/softmax.h"

#include <cmath>
#include <limits>

#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(Softmax, Cases) { expect_cases(softmax_cases()); }

TEST(Softmax, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(softmax_cases()); }

TEST(Softmax, NanIsNotHidden) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ThreadPool pool(1);
  Stream s({}, pool);
  for (float other : {-kInfinity, 1.0f}) {
    std::vector<float> x(20, other);
    x[3] = std::numeric_limits<float>::quiet_NaN();
    Tensor t{reinterpret_cast<uintptr_t>(x.data()), DType::f32, {1, 20}};
    softmax(s, t, t, 1);
    EXPECT_TRUE(std::isnan(x[3]) && std::isnan(x[0])) << other;
  }
}

TEST(Softmax, RefusesOtherShapesAndKinds) {
  Stream s = Stream::dry({});
  Tensor x{256, DType::f32, {4, 8}}, narrow{256, DType::f32, {4, 7}}, half{256, DType::bf16, {4, 8}};
  EXPECT_THROW(softmax(s, narrow, x, 1), Bug);
  EXPECT_THROW(softmax(s, half, x, 1), Bug);
  EXPECT_THROW(softmax_backward(s, x, narrow, x, 1), Bug);
}

}  // namespace
}  // namespace chiron
