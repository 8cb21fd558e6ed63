#include <gtest/gtest.h>

#include <algorithm>

#include "core/gpu_testing.h"
#include "ops/all_cases.h"

namespace chiron {
namespace {

/// The names of the ops, in the order of their cases.
std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for_each_op_case(CaseUse::check, [&](const OpCase& c) {
    if (std::ranges::find(names, c.op) == names.end()) names.push_back(c.op);
  });
  return names;
}

class GpuOps : public testing::TestWithParam<std::string> {};

TEST_P(GpuOps, Cases) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  for_each_op_case(CaseUse::check, [&](const OpCase& c) {
    if (c.op != GetParam()) return;
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (c.f32_only && dtype != DType::f32) continue;
      EXPECT_EQ(check_case(c, dtype, s), "") << c.op << " " << c.name << " " << name_of(dtype);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, GpuOps, testing::ValuesIn(op_names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace chiron
