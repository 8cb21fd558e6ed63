#include "ops/rmsnorm/rmsnorm.h"

#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(RmsNorm, Cases) { expect_cases(rmsnorm_cases()); }

TEST(RmsNorm, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(rmsnorm_cases()); }

}  // namespace
}  // namespace chiron
