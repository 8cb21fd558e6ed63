#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

namespace chiron {
namespace {

TEST(LearningRate, WarmsUpToThePeak) {
  LearningRate lr{.shape = LearningRate::constant, .peak = 2, .warmup_steps = 4, .max_steps = 10};
  EXPECT_DOUBLE_EQ(lr.at(0), 0.5);
  EXPECT_DOUBLE_EQ(lr.at(3), 2);
  EXPECT_DOUBLE_EQ(lr.at(100), 2);
}

TEST(LearningRate, LinearAndCosineFallToFinal) {
  LearningRate lr{.shape = LearningRate::linear, .peak = 1, .final = 0.2, .warmup_steps = 0, .max_steps = 10};
  EXPECT_DOUBLE_EQ(lr.at(0), 1);
  EXPECT_DOUBLE_EQ(lr.at(5), 0.6);
  EXPECT_DOUBLE_EQ(lr.at(10), 0.2);
  EXPECT_DOUBLE_EQ(lr.at(1000), 0.2);
  lr.shape = LearningRate::cosine;
  EXPECT_DOUBLE_EQ(lr.at(0), 1);
  EXPECT_NEAR(lr.at(5), 0.6, 1e-15);
  EXPECT_NEAR(lr.at(2), 0.2 + 0.4 * (1 + 0.80901699437494745), 1e-14);
  EXPECT_DOUBLE_EQ(lr.at(10), 0.2);
}

TEST(LearningRate, WsdIsFlatUntilTheDecay) {
  LearningRate lr{
      .shape = LearningRate::wsd, .peak = 1, .final = 0, .warmup_steps = 2, .max_steps = 20, .decay_steps = 4};
  EXPECT_DOUBLE_EQ(lr.at(1), 1);
  EXPECT_DOUBLE_EQ(lr.at(16), 1);
  EXPECT_DOUBLE_EQ(lr.at(18), 0.5);
  EXPECT_DOUBLE_EQ(lr.at(20), 0);
}

TEST(LearningRate, WarmupLongerThanTheRun) {
  LearningRate lr{.shape = LearningRate::cosine, .peak = 1, .warmup_steps = 20, .max_steps = 10};
  EXPECT_DOUBLE_EQ(lr.at(9), 0.5);
  EXPECT_DOUBLE_EQ(lr.at(19), 1);
}

}  // namespace
}  // namespace chiron
