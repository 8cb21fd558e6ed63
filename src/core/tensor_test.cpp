#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace chiron {
namespace {

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{0, 3}).numel(), 0);
  EXPECT_EQ((Shape{8, 256}).str(), "(8, 256)");
  EXPECT_EQ(Shape{}.str(), "()");
  EXPECT_FALSE(Shape({1, 2}) == Shape({2, 1}));
}

TEST(Tensor, SlicesAndReshapes) {
  Tensor t{4096, DType::bf16, {6, 5}};
  EXPECT_EQ(t.bytes(), 60);
  EXPECT_EQ(t.rows(), 6);
  EXPECT_EQ(t.cols(), 5);
  Tensor part = t.slice(2, 4);
  EXPECT_EQ(part.at, 4096u + 2 * 5 * 2);
  EXPECT_EQ(part.shape, (Shape{2, 5}));
  EXPECT_EQ(t.reshape({30}).shape, Shape{30});
  EXPECT_THROW(t.slice(3, 7), Bug);
  EXPECT_THROW(t.slice(4, 3), Bug);
  EXPECT_THROW(t.reshape({31}), Bug);
  EXPECT_THROW(t.data<float>(), Bug);
  EXPECT_EQ(t.data<bf16>(), reinterpret_cast<bf16*>(4096));
}

TEST(Rows, AreStrided) {
  Rows r(Tensor{0x1000, DType::f32, {4, 10}});
  EXPECT_TRUE(r.contiguous());
  Rows k = r.columns(3, 2);
  EXPECT_EQ(k.at, 0x1000u + 12);
  EXPECT_EQ(k.ld, 10);
  EXPECT_FALSE(k.contiguous());
  Rows lower = k.slice(1, 3);
  EXPECT_EQ(lower.at, 0x1000u + 12 + 40);
  EXPECT_EQ(lower.rows, 2);
  EXPECT_THROW(r.columns(9, 2), Bug);
  EXPECT_THROW(r.slice(0, 5), Bug);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f64), 8);
  EXPECT_EQ(size_of(DType::u16), 2);
  EXPECT_EQ(size_of(DType::e4m3), 1);
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(acc_dtype(DType::bf16), DType::f32);
  EXPECT_EQ(acc_dtype(DType::f64), DType::f64);
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(bf16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // a tie goes to the even one
  EXPECT_EQ(bf16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(bf16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isinf(static_cast<float>(bf16(std::numeric_limits<float>::max()))));
}

TEST(DType, F16RoundTripsAndRounds) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    f16 h;
    h.bits = static_cast<uint16_t>(bits);
    float f = h;
    if (std::isnan(f)) continue;
    EXPECT_EQ(f16(f).bits, bits);
  }
  EXPECT_EQ(f16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00);  // a tie beyond the largest: infinity
  EXPECT_EQ(f16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(f16(0x1p-25f).bits, 0);  // a tie with the smallest subnormal goes to zero
  EXPECT_EQ(f16(0x1.8p-25f).bits, 1);
  EXPECT_EQ(f16(1.0f + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(f16(1.0f + 0x3p-11f).bits, 0x3c02);
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace chiron
