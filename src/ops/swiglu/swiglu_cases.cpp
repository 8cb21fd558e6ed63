#include <cmath>

#include "ops/all_cases.h"
#include "ops/swiglu/swiglu.h"

namespace chiron {
namespace {

OpCase forward(int64_t rows, int64_t cols) {
  OpCase c{.op = "swiglu", .name = fmt::format("T{} F{}", rows, cols)};
  c.args = {{"y", Arg::value, Arg::output, {rows, cols}, {}},
            {"gu", Arg::value, Arg::input, {rows, 2 * cols}, random_normal(rows * 2 * cols, 1, 2)}};
  c.run = [](Stream& s, const std::vector<Tensor>& a, Stack&) { swiglu(s, a[0], a[1]); };
  c.reference = [rows, cols](Arrays& a) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < cols; ++i) {
        double g = a[1][static_cast<size_t>(2 * r * cols + i)], u = a[1][static_cast<size_t>((2 * r + 1) * cols + i)];
        a[0][static_cast<size_t>(r * cols + i)] = g / (1 + std::exp(-g)) * u;
      }
  };
  return c;
}

OpCase backward(int64_t rows, int64_t cols) {
  OpCase c{.op = "swiglu_backward", .name = fmt::format("T{} F{}", rows, cols)};
  c.args = {{"dgu", Arg::value, Arg::output, {rows, 2 * cols}, {}},
            {"dy", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 2)},
            {"gu", Arg::value, Arg::input, {rows, 2 * cols}, random_normal(rows * 2 * cols, 3, 2)}};
  c.run = [](Stream& s, const std::vector<Tensor>& a, Stack&) { swiglu_backward(s, a[0], a[1], a[2]); };
  c.gradient.forward = [](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor y = temp.push(a[1].dtype, a[1].shape);
    swiglu(s, y, a[2]);
    return std::vector{y};
  };
  c.gradient.upstream = {1};
  c.gradient.pairs = {{2, 0}};
  return c;
}

/// The gradient written over gate and up.
OpCase backward_in_place(int64_t rows, int64_t cols) {
  OpCase c{.op = "swiglu_backward", .name = fmt::format("T{} F{} in place", rows, cols)};
  c.args = {{"gu", Arg::value, Arg::inout, {rows, 2 * cols}, random_normal(rows * 2 * cols, 4, 2)},
            {"dy", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 5)}};
  c.run = [](Stream& s, const std::vector<Tensor>& a, Stack&) { swiglu_backward(s, a[0], a[1], a[0]); };
  c.reference = [rows, cols](Arrays& a) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < cols; ++i) {
        double &g = a[0][static_cast<size_t>(2 * r * cols + i)], &u = a[0][static_cast<size_t>((2 * r + 1) * cols + i)];
        double dy = a[1][static_cast<size_t>(r * cols + i)], e = std::exp(-g);
        double dg = dy * u * (1 + e + g * e) / ((1 + e) * (1 + e)), du = dy * g / (1 + e);
        g = dg;
        u = du;
      }
  };
  return c;
}

}  // namespace

std::vector<OpCase> swiglu_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench) return {forward(kTokens, kHidden), backward(kTokens, kHidden)};
  return {forward(1, 1),   forward(7, 33),          forward(65, 832),         backward(1, 1),
          backward(7, 33), backward_in_place(1, 1), backward_in_place(9, 832)};
}

}  // namespace chiron
