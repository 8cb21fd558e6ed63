#include "core/stack.h"

#include <gtest/gtest.h>

#include <cmath>

namespace chiron {
namespace {

TEST(Stack, ADryRunGivesTheSizeOfTheRealOne) {
  auto use = [](Stack& stack) {
    Tensor a = stack.push(DType::f32, {3, 5});
    {
      Scope scope(stack);
      stack.push(DType::bf16, {1000});
    }
    Tensor b = stack.push(DType::u8, {1});
    EXPECT_EQ(b.at - a.at, 256u);
    return b.at;
  };
  Stack dry = Stack::dry();
  use(dry);
  EXPECT_EQ(dry.peak(), 256 + 2048);
  Stack real(Device{}, dry.peak());
  use(real);
  EXPECT_EQ(real.peak(), dry.peak());
  EXPECT_THROW(real.push(DType::f32, {1000}), Bug);
}

TEST(Stack, ADryOneHoldsWhatNoMachineDoes) {
  Stack a = Stack::dry(6), b = Stack::dry(7);
  Tensor last = a.push(DType::f32, {1 << 20, 1 << 20, 1 << 15});
  EXPECT_TRUE(a.contains(last.at));
  EXPECT_FALSE(b.contains(last.at + static_cast<uintptr_t>(last.bytes()) - 1));
  EXPECT_EQ(a.peak(), int64_t{1} << 57);
  EXPECT_THROW(a.push(DType::f32, {1 << 20, 1 << 20, 1 << 15}), ConfigError);
  EXPECT_THROW(a.push(DType::f32, {1 << 30, 1 << 30, 1 << 30}), ConfigError) << "more than 2^63";
}

TEST(Stack, ReleasedMemoryIsPoisonedOnRequest) {
  Stack stack(Device{}, 1024);
  ThreadPool pool(1);
  Stream s({}, pool);
  stack.set_poison(&s);
  float* p;
  {
    Scope scope(stack);
    p = stack.push(DType::f32, {4}).data<float>();
    p[0] = 1;
  }
  EXPECT_TRUE(std::isnan(p[0]));
}

TEST(Stack, KnowsWhatIsInUse) {
  Stack stack(Device{}, 1024);
  Tensor a = stack.push(DType::f32, {4});
  int64_t top = stack.top();
  Tensor b = stack.push(DType::f32, {4});
  EXPECT_TRUE(stack.contains(b.at));
  stack.release(top);
  EXPECT_TRUE(stack.contains(a.at));
  EXPECT_FALSE(stack.contains(b.at));
  EXPECT_THROW(stack.release(top + 1), Bug);
}

TEST(Stack, DryStacksDoNotMeet) {
  Stack a = Stack::dry(0), b = Stack::dry(1);
  a.push(DType::f32, {int64_t{1} << 40});
  EXPECT_FALSE(a.contains(b.push(DType::f32, {1}).at));
}

TEST(Buffer, RefusesWhatIsNotThere) {
  EXPECT_THROW(Buffer(Device{}, int64_t{1} << 60), DeviceError);
  EXPECT_EQ(Buffer(Device{}, 0).at(), 0u);
}

}  // namespace
}  // namespace chiron
