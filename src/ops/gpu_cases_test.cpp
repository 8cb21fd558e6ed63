#include <gtest/gtest.h>

#include <map>

#include "core/gpu_testing.h"
#include "ops/all_cases.h"

namespace chiron {

void PrintTo(const OpFolder& folder, std::ostream* out) { *out << folder.name; }

namespace {

constexpr int64_t kLargeForTheEmulator = 10000;  // elements of all arguments

int64_t size_of(const OpCase& c) {
  int64_t numel = 0;
  for (const Arg& a : c.args) numel += a.shape.numel();
  return numel;
}

class GpuOps : public testing::TestWithParam<OpFolder> {};

TEST_P(GpuOps, Cases) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16};
  size_t number = 0;
  for (const OpCase& c : GetParam().cases(CaseUse::check)) {
    // The emulator takes seconds for a case of some size: each of those in one dtype, in turn.
    const bool turns = gpu_is_emulated() && size_of(c) > kLargeForTheEmulator;
    const DType turn = kDtypes[number++ % std::size(kDtypes)];
    for (DType dtype : kDtypes) {
      if (c.f32_only ? dtype != DType::f32 : turns && dtype != turn) continue;
      EXPECT_EQ(check_case(c, dtype, s), "") << c.op << " " << c.name << " " << name_of(dtype);
    }
  }
}

/// One small case per op and dtype, for tools that slow a program down a hundredfold.
TEST_P(GpuOps, SmallestCase) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  if (gpu_is_emulated()) GTEST_SKIP() << "those tools see no emulator";
  std::map<std::string, OpCase> smallest;
  for (const OpCase& c : GetParam().cases(CaseUse::check))
    if (auto [it, first] = smallest.try_emplace(c.op, c); !first && size_of(c) < size_of(it->second)) it->second = c;
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  for (const auto& [op, c] : smallest)
    for (DType dtype : {DType::f32, DType::bf16, DType::f16})
      if (dtype == DType::f32 || !c.f32_only) {
        EXPECT_EQ(check_case(c, dtype, s), "") << op << " " << c.name << " " << name_of(dtype);
      }
}

INSTANTIATE_TEST_SUITE_P(All, GpuOps, testing::ValuesIn(op_folders().begin(), op_folders().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace chiron
