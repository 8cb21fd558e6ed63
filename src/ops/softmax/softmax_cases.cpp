#include <cmath>
#include <limits>

#include "ops/all_cases.h"
#include "ops/softmax/softmax.h"

namespace chiron {
namespace {

/// Columns [1, 1 + cols) of a wider array, so that rows are strided and start at odd addresses.
Rows inner(Tensor t) { return Rows(t).columns(1, t.cols() - 3); }

OpCase forward(int64_t rows, int64_t cols, float scale, bool in_place, bool masked) {
  OpCase c{.op = "softmax",
           .name = fmt::format("T{} C{}{}{}", rows, cols, in_place ? " in place" : "", masked ? " masked" : "")};
  auto x = random_normal(rows * (cols + 3), 1, 3);
  if (masked) {
    for (size_t i = 0; i < x.size(); i += 3) x[i] = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < static_cast<size_t>(cols + 3); ++i) x[i] = -std::numeric_limits<double>::infinity();
  }
  if (in_place) {
    c.args = {{"x", Arg::value, Arg::inout, {rows, cols + 3}, x}};
    c.run = [scale](Stream& s, const std::vector<Tensor>& a, Stack&) { softmax(s, inner(a[0]), inner(a[0]), scale); };
  } else {
    c.args = {{"y", Arg::value, Arg::inout, {rows, cols + 3}, random_normal(rows * (cols + 3), 2)},
              {"x", Arg::value, Arg::input, {rows, cols + 3}, x}};
    c.run = [scale](Stream& s, const std::vector<Tensor>& a, Stack&) { softmax(s, inner(a[0]), inner(a[1]), scale); };
  }
  c.reference = [=](Arrays& a) {
    const auto in = a.back();
    for (int64_t r = 0; r < rows; ++r) {
      auto at = [=](int64_t i) { return static_cast<size_t>(r * (cols + 3) + 1 + i); };
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t i = 0; i < cols; ++i) top = std::fmax(top, in[at(i)] * static_cast<double>(scale));
      for (int64_t i = 0; i < cols; ++i)
        if (!std::isinf(in[at(i)])) sum += std::exp(in[at(i)] * static_cast<double>(scale) - top);
      for (int64_t i = 0; i < cols; ++i)
        a[0][at(i)] = std::isinf(in[at(i)]) ? 0 : std::exp(in[at(i)] * static_cast<double>(scale) - top) / sum;
    }
  };
  return c;
}

OpCase backward(int64_t rows, int64_t cols, bool in_place) {
  constexpr float kScale = 0.7f;
  OpCase c{.op = "softmax_backward", .name = fmt::format("T{} C{}{}", rows, cols, in_place ? " in place" : "")};
  auto n = rows * cols;
  if (in_place) {
    c.args = {{"dy", Arg::value, Arg::inout, {rows, cols}, random_normal(n, 3)},
              {"y", Arg::value, Arg::input, {rows, cols}, random_normal(n, 4)}};
    c.run = [](Stream& s, const std::vector<Tensor>& a, Stack&) { softmax_backward(s, a[0], a[0], a[1], kScale); };
    c.reference = [=](Arrays& a) {
      for (int64_t r = 0; r < rows; ++r) {
        double dot = 0;
        for (int64_t i = r * cols; i < (r + 1) * cols; ++i)
          dot += a[0][static_cast<size_t>(i)] * a[1][static_cast<size_t>(i)];
        for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
          auto at = static_cast<size_t>(i);
          a[0][at] = static_cast<double>(kScale) * a[1][at] * (a[0][at] - dot);
        }
      }
    };
    return c;
  }
  c.args = {{"dx", Arg::value, Arg::output, {rows, cols}, {}},
            {"dy", Arg::value, Arg::input, {rows, cols}, random_normal(n, 3)},
            {"x", Arg::value, Arg::input, {rows, cols}, random_normal(n, 4)},
            {"y", Arg::value, Arg::derived, {rows, cols}, {}}};
  c.prepare = [](Stream& s, const std::vector<Tensor>& a, Stack&) { softmax(s, a[3], a[2], kScale); };
  c.run = [](Stream& s, const std::vector<Tensor>& a, Stack&) { softmax_backward(s, a[0], a[1], a[3], kScale); };
  // y is rounded to the dtype before the op sees it, so the f64 run would not be the truth of a 16-bit one.
  c.reference = [=](Arrays& a) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < cols; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < cols; ++j) {
          auto at = static_cast<size_t>(r * cols + j);
          sum += a[1][at] * a[3][at] * ((i == j ? 1.0 : 0.0) - a[3][static_cast<size_t>(r * cols + i)]);
        }
        a[0][static_cast<size_t>(r * cols + i)] = static_cast<double>(kScale) * sum;
      }
  };
  c.gradient.forward = [](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor y = temp.push(a[2].dtype, a[2].shape);
    softmax(s, y, a[2], kScale);
    return std::vector{y};
  };
  c.gradient.upstream = {1};
  c.gradient.pairs = {{2, 0}};
  return c;
}

}  // namespace

std::vector<OpCase> softmax_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench) return {forward(kTokens, kLength, 1, false, false), backward(kTokens, kLength, false)};
  return {forward(1, 1, 1, false, false),   forward(7, 33, 0.5f, false, false),
          forward(5, 16, -1, true, false),  forward(67, 300, 1, true, true),
          forward(3, 2000, 2, false, true), backward(1, 1, false),
          backward(7, 33, false),           backward(33, 130, true)};
}

}  // namespace chiron
