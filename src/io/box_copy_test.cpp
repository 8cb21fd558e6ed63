#include "io/box_copy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace chiron {
namespace {

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

TEST(BoxCopy, IntersectionOfBoxesInThreeDimensions) {
  // Element (i, j, k) of the global tensor is 100 i + 10 j + k; both boxes hold a part of it.
  Box a{{1, 0, 2}, {3, 4, 3}}, b{{2, 1, 0}, {4, 5, 4}};
  std::vector<int32_t> from(3 * 4 * 3), to(4 * 5 * 4, -1);
  size_t n = 0;
  for (int i = 1; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      for (int k = 2; k < 5; ++k) from[n++] = 100 * i + 10 * j + k;
  EXPECT_EQ(common(a, b).size.numel(), 2 * 3 * 2);
  EXPECT_EQ(copy_box(box_view(address(to.data()), DType::i32, b), box_view(address(from.data()), DType::i32, a)), 12);
  n = 0;
  for (int i = 2; i < 6; ++i)
    for (int j = 1; j < 6; ++j)
      for (int k = 0; k < 4; ++k, ++n) EXPECT_EQ(to[n], i < 4 && j < 4 && k >= 2 ? 100 * i + 10 * j + k : -1);
}

TEST(BoxCopy, DisjointBoxesShareNothing) {
  Box a{{0, 0}, {2, 2}}, b{{2, 0}, {2, 2}};
  float x[4] = {1, 2, 3, 4}, y[4] = {};
  EXPECT_EQ(copy_box(box_view(address(y), DType::f32, b), box_view(address(x), DType::f32, a)), 0);
  EXPECT_EQ(y[0], 0);
}

TEST(BoxCopy, TransposedAndStridedAndBack) {
  // In memory 37 rows of 45 with 50 between them, on disk 45 x 37: more than one tile each way, odd sizes.
  const int64_t rows = 37, cols = 45, ld = 50;
  std::mt19937 random(1);
  std::vector<float> memory(static_cast<size_t>(rows * ld)), disk(static_cast<size_t>(rows * cols)),
      back(memory.size());
  for (float& x : memory) x = std::normal_distribution<float>()(random);
  StatePart part{"w", {}, true, whole({cols, rows}), {cols, rows}};
  part.data.at = address(memory.data());
  part.data.rows = rows, part.data.cols = cols, part.data.ld = ld;
  BoxView file = box_view(address(disk.data()), DType::f32, part.part);
  EXPECT_EQ(copy_box(file, box_view(part)), rows * cols);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      ASSERT_EQ(disk[static_cast<size_t>(c * rows + r)], memory[static_cast<size_t>(r * ld + c)]);
  part.data.at = address(back.data());
  copy_box(box_view(part), file);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < ld; ++c) {
      auto i = static_cast<size_t>(r * ld + c);
      ASSERT_EQ(back[i], c < cols ? memory[i] : 0.0f) << "what lies between the rows must stay untouched";
    }
}

TEST(BoxCopy, Conversions) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0.0f, -0.0f, 1.0f, 1.00390625f, 3.14159265f, -65504.0f, 1e30f, inf, NAN, 1e-8f};
  const auto n = static_cast<int64_t>(x.size());
  Box box = whole({n});
  auto through = [&](auto narrow) {
    using T = decltype(narrow);
    std::vector<T> y(x.size());
    std::vector<float> z(x.size());
    std::vector<double> wide(x.size());
    copy_box(box_view(address(y.data()), dtype_of<T>(), box), box_view(address(x.data()), DType::f32, box));
    copy_box(box_view(address(z.data()), DType::f32, box), box_view(address(y.data()), dtype_of<T>(), box));
    copy_box(box_view(address(wide.data()), DType::f64, box), box_view(address(y.data()), dtype_of<T>(), box));
    for (size_t i = 0; i < x.size(); ++i) {
      float want = static_cast<float>(T(x[i]));
      EXPECT_TRUE(z[i] == want || (std::isnan(z[i]) && std::isnan(want))) << i;
      EXPECT_TRUE(wide[i] == want || (std::isnan(wide[i]) && std::isnan(want))) << i;
    }
  };
  through(bf16());
  through(f16());
  through(double());
  double third = 1.0 / 3;
  float f = 0;
  copy_box(box_view(address(&f), DType::f32, {}), box_view(address(&third), DType::f64, {}));
  EXPECT_EQ(f, static_cast<float>(third)) << "a scalar has rank 0";
}

TEST(BoxCopy, EqualTypesKeepTheirBits) {
  uint32_t nan = 0x7fa12345u, out = 0;  // a signalling NaN with a payload
  copy_box(box_view(address(&out), DType::f32, {}), box_view(address(&nan), DType::f32, {}));
  EXPECT_EQ(out, nan);
}

TEST(BoxCopy, UnalignedMemory) {
  std::vector<unsigned char> bytes(1 + 4 * sizeof(float));
  float x[4] = {1, 2, 3, 4}, y[4] = {};
  std::copy_n(reinterpret_cast<unsigned char*>(x), sizeof x, bytes.data() + 1);
  copy_box(box_view(address(y), DType::f32, whole({4})), box_view(address(bytes.data() + 1), DType::f32, whole({4})));
  EXPECT_EQ(y[3], 4);
}

TEST(BoxCopy, TypesThatDoNotConvert) {
  EXPECT_TRUE(convertible(DType::bf16, DType::f64));
  EXPECT_TRUE(convertible(DType::i64, DType::i64));
  EXPECT_TRUE(convertible(DType::e4m3, DType::e4m3));
  EXPECT_FALSE(convertible(DType::i64, DType::i32));
  EXPECT_FALSE(convertible(DType::i64, DType::f32));
  EXPECT_FALSE(convertible(DType::e4m3, DType::f32));
}

TEST(BoxCopy, BrokenPartsAreOurBug) {
  float x[6];
  StatePart part{"w", Rows(View{address(x), DType::f32, {2, 3}}), false, whole({3, 2}), {3, 2}};
  EXPECT_THROW(box_view(part), Bug);
  part.transposed = true;
  EXPECT_NO_THROW(box_view(part));
  part.part.offset[0] = 1;
  EXPECT_THROW(box_view(part), Bug);
}

}  // namespace
}  // namespace chiron
