#include "ops/op_case_selftest.h"

#include "ops/all_cases.h"

namespace chiron {

void self_test(Stream& s, const std::function<void(const OpVerdict&)>& report) {
  std::vector<DType> dtypes{DType::f32, DType::bf16, DType::f16};
  if (!s.on_gpu()) dtypes.push_back(DType::f64);
  OpVerdict verdict;
  for_each_op_case(CaseUse::check, [&](const OpCase& c) {
    if (c.op != verdict.op) {
      if (verdict.runs > 0) report(verdict);
      verdict = {.op = c.op};
    }
    for (DType dtype : dtypes) {
      if (c.f32_only && dtype != DType::f32) continue;
      ++verdict.runs;
      std::string wrong;
      try {
        wrong = check_case(c, dtype, s);
      } catch (const Error& e) {
        wrong = e.what();
      }
      if (!wrong.empty()) verdict.failures.push_back(fmt::format("{} {}: {}", c.name, name_of(dtype), wrong));
    }
  });
  if (verdict.runs > 0) report(verdict);
}

}  // namespace chiron
