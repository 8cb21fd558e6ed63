#include <cmath>

#include "ops/all_cases.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace chiron {
namespace {

constexpr float kEps = 1e-5f;

OpCase forward(int64_t rows, int64_t cols) {
  OpCase c{.op = "rmsnorm", .name = fmt::format("T{} C{}", rows, cols)};
  c.args = {{"y", Arg::value, Arg::output, {rows, cols}, {}},
            {"rstd", Arg::accum, Arg::output, {rows}, {}},
            {"x", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 1, 2, 0.5)},
            {"w", Arg::value, Arg::input, {cols}, random_normal(cols, 2, 0.5, 1)}};
  c.run = [](Stream& s, const std::vector<Tensor>& a, Stack&) { rmsnorm(s, a[0], a[1], a[2], a[3], kEps); };
  c.reference = [rows, cols](Arrays& a) {
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < cols; ++i) sum += std::pow(a[2][static_cast<size_t>(r * cols + i)], 2);
      double root = std::sqrt(sum / static_cast<double>(cols) + static_cast<double>(kEps));
      a[1][static_cast<size_t>(r)] = 1 / root;
      for (int64_t i = 0; i < cols; ++i) {
        auto at = static_cast<size_t>(r * cols + i);
        a[0][at] = a[2][at] / root * a[3][static_cast<size_t>(i)];
      }
    }
  };
  return c;
}

OpCase backward(int64_t rows, int64_t cols, Accum accum) {
  bool add = accum == Accum::add;
  OpCase c{.op = "rmsnorm_backward", .name = fmt::format("T{} C{}{}", rows, cols, add ? " add" : "")};
  auto n = rows * cols;
  c.args = {
      {"dx", Arg::value, Arg::inout, {rows, cols}, random_normal(n, 3)},
      {"dw", Arg::accum, add ? Arg::inout : Arg::output, {cols}, add ? random_normal(cols, 4) : std::vector<double>{}},
      {"dy", Arg::value, Arg::input, {rows, cols}, random_normal(n, 5)},
      {"x", Arg::value, Arg::input, {rows, cols}, random_normal(n, 6, 2, 0.5)},
      {"rstd", Arg::accum, Arg::derived, {rows}, {}},
      {"w", Arg::value, Arg::input, {cols}, random_normal(cols, 7, 0.5, 1)}};
  c.prepare = [](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    rmsnorm(s, temp.push(a[3].dtype, a[3].shape), a[4], a[3], a[5], kEps);
  };
  c.run = [accum](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    rmsnorm_backward(s, a[0], a[1], accum, a[2], a[3], a[4], a[5], temp);
  };
  c.gradient.forward = [](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor y = temp.push(a[3].dtype, a[3].shape);
    rmsnorm(s, y, temp.push(DType::f64, a[4].shape), a[3], a[5], kEps);
    return std::vector{y};
  };
  c.gradient.upstream = {2};
  c.gradient.pairs = {{3, 0}, {5, 1}};
  return c;
}

/// Finite differences would take too long.
OpCase long_rows(OpCase c) {
  c.gradient = {};
  return c;
}

}  // namespace

std::vector<OpCase> rmsnorm_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench) return {forward(kTokens, kWidth), backward(kTokens, kWidth, Accum::overwrite)};
  return {forward(1, 1),
          forward(7, 33),
          forward(65, 832),
          forward(3, 2100),
          backward(1, 1, Accum::overwrite),
          backward(7, 33, Accum::add),
          backward(67, 48, Accum::overwrite),
          long_rows(backward(19, 2104, Accum::add)),
          long_rows(backward(2, 16390, Accum::overwrite))};
}

}  // namespace chiron
