#include <cmath>

#include "ops/all_cases.h"
#include "ops/layernorm/layernorm.h"

namespace chiron {
namespace {

constexpr float kEps = 1e-5f;

OpCase forward(int64_t rows, int64_t cols, bool bias, double shift) {
  OpCase c{.op = "layernorm", .name = fmt::format("T{} C{}{}", rows, cols, bias ? " bias" : "")};
  c.args = {{"y", Arg::value, Arg::output, {rows, cols}, {}},
            {"stat", Arg::accum, Arg::output, {rows, 2}, {}},
            {"x", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 1, 2, shift)},
            {"w", Arg::value, Arg::input, {cols}, random_normal(cols, 2, 0.5, 1)},
            {"b", Arg::value, Arg::input, {cols}, random_normal(cols, 3)}};
  c.run = [bias](Stream& s, const std::vector<Tensor>& a, Stack&) {
    layernorm(s, a[0], a[1], a[2], a[3], bias ? View(a[4]) : View{}, kEps);
  };
  c.reference = [rows, cols, bias](Arrays& a) {
    for (int64_t r = 0; r < rows; ++r) {
      const double* x = a[2].data() + r * cols;
      double mean = 0, square = 0;
      for (int64_t i = 0; i < cols; ++i) mean += x[i] / static_cast<double>(cols);
      for (int64_t i = 0; i < cols; ++i) square += std::pow(x[i] - mean, 2);
      double deviation = std::sqrt(square / static_cast<double>(cols) + static_cast<double>(kEps));
      a[1][static_cast<size_t>(2 * r)] = mean;
      a[1][static_cast<size_t>(2 * r + 1)] = 1 / deviation;
      for (int64_t i = 0; i < cols; ++i) {
        auto at = static_cast<size_t>(i);
        a[0][static_cast<size_t>(r * cols + i)] = (x[i] - mean) / deviation * a[3][at] + (bias ? a[4][at] : 0);
      }
    }
  };
  return c;
}

struct Trained {
  bool w, b;
};

OpCase backward(int64_t rows, int64_t cols, Accum accum_w, Accum accum_b, Trained trained) {
  OpCase c{.op = "layernorm_backward", .name = fmt::format("T{} C{}", rows, cols)};
  auto n = rows * cols;
  // A gradient that is not trained must stay as it is: it is passed as absent, and compared with its contents.
  auto weight_gradient = [&](const char* name, Accum accum, bool present, uint32_t seed) {
    if (!present) c.name += fmt::format(" no {}", name);
    if (present && accum == Accum::add) c.name += fmt::format(" add {}", name);
    if (!present || accum == Accum::add)
      return Arg{name, Arg::accum, present ? Arg::inout : Arg::input, {cols}, random_normal(cols, seed)};
    return Arg{name, Arg::accum, Arg::output, {cols}, {}};
  };
  c.args = {{"dx", Arg::value, Arg::inout, {rows, cols}, random_normal(n, 3)},
            weight_gradient("dw", accum_w, trained.w, 4),
            weight_gradient("db", accum_b, trained.b, 5),
            {"dy", Arg::value, Arg::input, {rows, cols}, random_normal(n, 6)},
            {"x", Arg::value, Arg::input, {rows, cols}, random_normal(n, 7, 2, 0.5)},
            {"stat", Arg::accum, Arg::derived, {rows, 2}, {}},
            {"w", Arg::value, Arg::input, {cols}, random_normal(cols, 8, 0.5, 1)},
            {"b", Arg::value, Arg::input, {cols}, random_normal(cols, 9)}};
  c.prepare = [](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    layernorm(s, temp.push(a[4].dtype, a[4].shape), a[5], a[4], a[6], a[7], kEps);
  };
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    layernorm_backward(s, a[0], trained.w ? a[1] : Tensor{}, accum_w, trained.b ? a[2] : Tensor{}, accum_b, a[3], a[4],
                       a[5], a[6], temp);
  };
  c.gradient.forward = [](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor y = temp.push(a[4].dtype, a[4].shape);
    layernorm(s, y, temp.push(DType::f64, a[5].shape), a[4], a[6], a[7], kEps);
    return std::vector{y};
  };
  c.gradient.upstream = {3};
  c.gradient.pairs = {{4, 0}};
  if (trained.w) c.gradient.pairs.push_back({6, 1});
  if (trained.b) c.gradient.pairs.push_back({7, 2});
  return c;
}

/// Finite differences would take too long.
OpCase long_rows(OpCase c) {
  c.gradient = {};
  return c;
}

}  // namespace

std::vector<OpCase> layernorm_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench)
    return {forward(kTokens, kWidth, true, 0.5),
            backward(kTokens, kWidth, Accum::overwrite, Accum::overwrite, {true, true})};
  constexpr Accum kOverwrite = Accum::overwrite, kAdd = Accum::add;
  return {forward(1, 1, true, 0),
          forward(7, 33, true, 0.5),
          forward(65, 832, true, 0.5),
          forward(3, 48, false, 3),
          forward(2, 2100, true, 0.5),
          backward(1, 1, kOverwrite, kOverwrite, {true, true}),
          backward(7, 33, kAdd, kOverwrite, {true, true}),
          backward(5, 16, kOverwrite, kAdd, {true, true}),
          backward(3, 48, kOverwrite, kOverwrite, {false, true}),
          backward(3, 20, kOverwrite, kOverwrite, {false, false}),
          backward(67, 17, kOverwrite, kOverwrite, {true, true}),
          long_rows(backward(19, 1032, kAdd, kOverwrite, {true, true})),
          long_rows(backward(2, 8190, kOverwrite, kAdd, {true, true})),
          long_rows(backward(2, 2050, kOverwrite, kOverwrite, {false, false}))};
}

}  // namespace chiron
