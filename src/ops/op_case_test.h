#pragma once

#include <gtest/gtest.h>

#include "ops/all_cases.h"

namespace chiron {

/// Runs every case in every dtype of the CPU, and its gradient check.
inline void expect_cases(const std::vector<OpCase>& cases) {
  ASSERT_FALSE(cases.empty());
  ThreadPool pool(2);
  Stream s({}, pool);
  for (const OpCase& c : cases) {
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      if (c.f32_only && dtype != DType::f32) continue;
      EXPECT_EQ(check_case(c, dtype, s), "") << c.op << " " << c.name << " " << name_of(dtype);
    }
    EXPECT_EQ(check_gradient(c, s), "") << c.op << " " << c.name;
  }
}

/// The outputs of every case on one thread and on three.
inline void expect_same_bits_for_any_threads(const std::vector<OpCase>& cases) {
  ThreadPool one(1), three(3);
  Stream a({}, one), b({}, three);
  for (const OpCase& c : cases) EXPECT_EQ(compare_streams(c, DType::f32, a, b), "") << c.op << " " << c.name;
}

}  // namespace chiron
