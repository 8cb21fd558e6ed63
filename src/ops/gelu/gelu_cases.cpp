#include <cmath>
#include <numbers>

#include "ops/all_cases.h"
#include "ops/gelu/gelu.h"

namespace chiron {
namespace {

const char* name_of_kind(Gelu kind) { return kind == Gelu::tanh ? "tanh" : "erf"; }

OpCase forward(int64_t rows, int64_t cols, Gelu kind) {
  OpCase c{.op = "gelu", .name = fmt::format("T{} F{} {}", rows, cols, name_of_kind(kind))};
  c.args = {{"y", Arg::value, Arg::output, {rows, cols}, {}},
            {"x", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 1, 2)}};
  c.run = [kind](Stream& s, const std::vector<Tensor>& a, Stack&) { gelu(s, a[0], a[1], kind); };
  c.reference = [kind](Arrays& a) {
    for (size_t i = 0; i < a[1].size(); ++i) {
      double x = a[1][i];
      double z = kind == Gelu::tanh ? std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * std::pow(x, 3)))
                                    : std::erf(x / std::sqrt(2.0));
      a[0][i] = x / 2 * (1 + z);
    }
  };
  return c;
}

OpCase backward(int64_t rows, int64_t cols, Gelu kind, bool in_place) {
  OpCase c{.op = "gelu_backward",
           .name = fmt::format("T{} F{} {}{}", rows, cols, name_of_kind(kind), in_place ? " in place" : "")};
  auto n = rows * cols;
  c.args = {{"dx",
             Arg::value,
             in_place ? Arg::inout : Arg::output,
             {rows, cols},
             in_place ? random_normal(n, 2) : std::vector<double>{}},
            {"dy", Arg::value, Arg::input, {rows, cols}, random_normal(n, 2)},
            {"x", Arg::value, Arg::input, {rows, cols}, random_normal(n, 3, 2)}};
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack&) {
    gelu_backward(s, a[0], in_place ? a[0] : a[1], a[2], kind);
  };
  // The derivative once more, by hand and in other terms than the kernel's.
  c.reference = [kind](Arrays& a) {
    for (size_t i = 0; i < a[2].size(); ++i) {
      double x = a[2][i], k = std::sqrt(2 / std::numbers::pi), d = 0;
      if (kind == Gelu::tanh) {
        double t = std::tanh(k * (x + 0.044715 * std::pow(x, 3)));
        d = (1 + t) / 2 + x / 2 * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
      } else {
        d = std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
      }
      a[0][i] = a[1][i] * d;
    }
  };
  if (in_place) return c;  // the gradient check adds what an inout argument held
  c.gradient.forward = [kind](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor y = temp.push(a[2].dtype, a[2].shape);
    gelu(s, y, a[2], kind);
    return std::vector{y};
  };
  c.gradient.upstream = {1};
  c.gradient.pairs = {{2, 0}};
  return c;
}

}  // namespace

std::vector<OpCase> gelu_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench)
    return {forward(kTokens, kHidden, Gelu::tanh), forward(kTokens, kHidden, Gelu::erf),
            backward(kTokens, kHidden, Gelu::tanh, false), backward(kTokens, kHidden, Gelu::erf, false)};
  std::vector<OpCase> cases;
  for (Gelu kind : {Gelu::tanh, Gelu::erf}) {
    cases.push_back(forward(1, 1, kind));
    cases.push_back(forward(7, 33, kind));
    cases.push_back(forward(65, 832, kind));
    cases.push_back(backward(1, 1, kind, false));
    cases.push_back(backward(7, 33, kind, false));
    cases.push_back(backward(5, 832, kind, true));
  }
  return cases;
}

}  // namespace chiron
