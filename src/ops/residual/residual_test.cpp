#include "ops/residual/residual.h"

#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(Residual, Cases) { expect_cases(residual_cases()); }

TEST(Residual, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(residual_cases()); }

TEST(Residual, RefusesOtherShapesAndTypes) {
  Stream s = Stream::dry({});
  Tensor y{256, DType::f32, {2, 3}};
  EXPECT_THROW(add(s, y, y, View{512, DType::f32, {3, 2}}), Bug);
  EXPECT_THROW(add(s, y, View{512, DType::bf16, {2, 3}}, y), Bug);
}

}  // namespace
}  // namespace chiron
