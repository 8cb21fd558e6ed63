#include "base/numbers.h"

#include <gmock/gmock.h>

#include <limits>

namespace chiron {
namespace {

using testing::HasSubstr;

std::string int_problem(const char* text) {
  std::string problem;
  EXPECT_EQ(parse_int(text, problem), std::nullopt) << text;
  return problem;
}

std::string double_problem(const char* text) {
  std::string problem;
  EXPECT_EQ(parse_double(text, problem), std::nullopt) << text;
  return problem;
}

TEST(Numbers, WholeNumbersAreDecimal) {
  std::string problem;
  EXPECT_EQ(parse_int("0", problem), 0);
  EXPECT_EQ(parse_int("-17", problem), -17);
  EXPECT_EQ(parse_int("512k", problem), 512'000);
  EXPECT_EQ(parse_int("1M", problem), 1'000'000);
  EXPECT_EQ(parse_int("-3G", problem), -3'000'000'000);
  EXPECT_EQ(parse_int("9223372036854775807", problem), std::numeric_limits<int64_t>::max());
}

TEST(Numbers, WhatIsNoWholeNumberIsRefusedWithTheRemedy) {
  EXPECT_THAT(int_problem("010"), HasSubstr("010 has a leading zero"));
  EXPECT_THAT(int_problem("-010"), HasSubstr("leading zero"));
  EXPECT_THAT(int_problem("1_000"), HasSubstr("write 1000"));
  EXPECT_THAT(int_problem("1,000"), HasSubstr("write 1000"));
  EXPECT_THAT(int_problem("1,5"), HasSubstr("has a comma where a decimal point belongs: 1.5"));
  EXPECT_THAT(int_problem("0x10"), HasSubstr("hexadecimal"));
  EXPECT_THAT(int_problem("+5"), HasSubstr("write 5"));
  EXPECT_THAT(int_problem("1e6"), HasSubstr("write 1000000"));
  EXPECT_THAT(int_problem("3.0"), HasSubstr("write 3"));
  EXPECT_THAT(int_problem("1.5"), HasSubstr("no whole number"));
  EXPECT_THAT(int_problem("5K"), HasSubstr("use k (10^3)"));
  EXPECT_THAT(int_problem("9223372036854775808"), HasSubstr("64 bits"));
  EXPECT_THAT(int_problem("9223372036854775G"), HasSubstr("64 bits"));
  for (const char* text : {"", "-", "k", "--1", "1 2", "ten", "1k2", "kk", " 1", "1-"}) int_problem(text);
}

TEST(Numbers, NumbersAreFiniteAndDecimal) {
  std::string problem;
  EXPECT_EQ(parse_double("1e-4", problem), 1e-4);
  EXPECT_EQ(parse_double("3e8", problem), 3e8);
  EXPECT_EQ(parse_double("-0.5", problem), -0.5);
  EXPECT_EQ(parse_double(".5", problem), 0.5);
  EXPECT_EQ(parse_double("7", problem), 7.0);
  EXPECT_EQ(parse_double("500k", problem), 500'000.0);
  for (const char* text : {"inf", "-inf", ".inf", "nan", ".nan", "NaN", "infinity", "1e400", "1e-400", "1e", "1e5x",
                           "0x1p3", "01.5", "1_000.5", "+1", "", "k", "1.2.3"}) {
    double_problem(text);
  }
  EXPECT_THAT(double_problem("1e400"), HasSubstr("range of a double"));
  EXPECT_THAT(double_problem("1,5"), HasSubstr("decimal point belongs: 1.5"));
  EXPECT_THAT(double_problem("-0,001"), HasSubstr("decimal point belongs: -0.001"));
  EXPECT_THAT(double_problem("2,25e-3"), HasSubstr("decimal point belongs: 2.25e-3"));
  EXPECT_THAT(double_problem("12,500"), HasSubstr("digit separators: write 12500"));
  EXPECT_THAT(double_problem("1,000,000"), HasSubstr("write 1000000"));
  EXPECT_THAT(double_problem("1_000,5"), HasSubstr("digit separators"));
}

TEST(Numbers, ShortestReadsBack) {
  std::string problem;
  for (double x : {0.1, 1e-5, 3e8, 1.0 / 3, 1e300, 5e-324, 0.0, 1e16, 123456789.123}) {
    EXPECT_EQ(parse_double(shortest(x), problem), x) << shortest(x) << " " << problem;
  }
}

TEST(Numbers, CountsHaveCommasAndAPlural) {
  EXPECT_EQ(counted(0, "file"), "0 files");
  EXPECT_EQ(counted(1, "file"), "1 file");
  EXPECT_EQ(counted(16491, "token"), "16,491 tokens");
}

}  // namespace
}  // namespace chiron
