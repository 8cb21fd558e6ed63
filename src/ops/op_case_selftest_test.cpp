#include "ops/op_case_selftest.h"

#include <gtest/gtest.h>

#include <set>

#include "core/gpu_testing.h"
#include "ops/all_cases.h"
#include "ops/residual/residual.h"

namespace chiron {
namespace {

TEST(LongSelfTest, FindsEveryOpRight) {
  std::set<std::string> ops, reported;
  for_each_op_case(CaseUse::check, [&](const OpCase& c) { ops.insert(c.op); });
  ThreadPool pool(2);
  Stream s({}, pool);
  self_test(s, [&](const OpVerdict& v) {
    EXPECT_TRUE(reported.insert(v.op).second) << v.op << " is reported twice";
    EXPECT_GT(v.runs, 0);
    EXPECT_TRUE(v.failures.empty()) << v.op << " " << v.failures[0];
  });
  EXPECT_EQ(reported, ops);
}

TEST(GpuSelfTest, ReportsWhatTheDeviceRefuses) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  if constexpr (gpu::kBuilt) {
    ThreadPool pool(1);
    Stream s(kGpu, pool);
    Stack memory(kGpu, 1 << 10);
    const Tensor t = memory.push(DType::f32, {16});
    gpu::fail_launch(1, "a fault for the test", true);
    EXPECT_THROW(add(s, t, t, t), DeviceError);  // loses the device
    int ops = 0;
    self_test(s, [&](const OpVerdict& v) {
      ++ops;
      ASSERT_EQ(v.failures.size(), static_cast<size_t>(v.runs)) << v.op;
      EXPECT_NE(v.failures[0].find("a fault for the test"), std::string::npos) << v.failures[0];
    });
    gpu::fail_launch(0, "", false);
    EXPECT_GT(ops, 20);
  }
}

}  // namespace
}  // namespace chiron
