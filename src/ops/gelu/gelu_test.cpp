#include "ops/gelu/gelu.h"

#include <cmath>

#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(Gelu, Cases) { expect_cases(gelu_cases()); }

TEST(Gelu, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(gelu_cases()); }

TEST(Gelu, FarFromZeroIsZeroOrX) {
  ThreadPool pool(1);
  Stream s({}, pool);
  for (Gelu kind : {Gelu::tanh, Gelu::erf}) {
    std::vector<float> x{-1e6f, -50, 0, 50, 1e6f, std::nanf("")}, y(6), dx(6), ones(6, 1);
    auto tensor = [](std::vector<float>& v) {
      return Tensor{reinterpret_cast<uintptr_t>(v.data()), DType::f32, {1, 6}};
    };
    gelu(s, tensor(y), tensor(x), kind);
    gelu_backward(s, tensor(dx), tensor(ones), tensor(x), kind);
    EXPECT_EQ(std::vector(y.begin(), y.end() - 1), (std::vector<float>{0, 0, 0, 50, 1e6f}));
    EXPECT_EQ(std::vector(dx.begin(), dx.end() - 1), (std::vector<float>{0, 0, 0.5, 1, 1}));
    EXPECT_TRUE(std::isnan(y[5]) && std::isnan(dx[5]));
  }
}

}  // namespace
}  // namespace chiron
