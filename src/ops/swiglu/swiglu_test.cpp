#include "ops/swiglu/swiglu.h"

#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(SwiGlu, Cases) { expect_cases(swiglu_cases()); }

TEST(SwiGlu, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(swiglu_cases()); }

TEST(SwiGlu, RefusesAGateOfAnotherWidth) {
  Stream s = Stream::dry({});
  EXPECT_THROW(swiglu(s, {256, DType::f32, {2, 3}}, {512, DType::f32, {2, 7}}), Bug);
  EXPECT_THROW(swiglu(s, {256, DType::f32, {2, 3}}, {512, DType::bf16, {2, 6}}), Bug);
}

}  // namespace
}  // namespace chiron
