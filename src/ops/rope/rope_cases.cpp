#include <cmath>
#include <memory>

#include "ops/all_cases.h"
#include "ops/rope/rope.h"

namespace chiron {
namespace {

using Frequencies = std::shared_ptr<std::vector<float>>;  // f32 whatever the dtype under test

Frequencies frequencies(int64_t half) {
  auto f = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < half; ++i)
    f->push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(half)));
  return f;
}
/// Where the stream's kernels read them, on `temp`.
View place(Stream& s, const Frequencies& f, Stack& temp) {
  const Tensor t = temp.push(DType::f32, {std::ssize(*f)});
  s.upload(t, f->data());
  return t;
}

OpCase rotation(int64_t rows, int64_t heads, int64_t head_dim, int64_t below, bool inverse, int64_t behind = 5) {
  OpCase c{.op = inverse ? "rope_backward" : "rope",
           .name = fmt::format("T{} H{} D{} to {}", rows, heads, head_dim, below)};
  // q and k of a qkv row are rotated, v behind them is not.
  const int64_t cols = heads * head_dim, ld = cols + behind, half = head_dim / 2;
  Frequencies f = frequencies(half);
  c.args = {{"x", Arg::value, Arg::inout, {rows, ld}, random_normal(rows * ld, 1)},
            {"positions", Arg::ids, Arg::input, {rows}, random_ids(rows, below, 2)}};
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    rope(s, Rows(a[0]).columns(0, cols), a[1], place(s, f, temp), heads, inverse);
  };
  c.reference = [=](Arrays& a) {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < half; ++i) {
          double angle = a[1][static_cast<size_t>(t)] * static_cast<double>((*f)[static_cast<size_t>(i)]);
          if (inverse) angle = -angle;
          double &x = a[0][static_cast<size_t>(t * ld + h * head_dim + i)],
                 &y = a[0][static_cast<size_t>(t * ld + h * head_dim + half + i)], was = x;
          x = was * std::cos(angle) - y * std::sin(angle);
          y = y * std::cos(angle) + was * std::sin(angle);
        }
  };
  return c;
}

/// The inverse applied to an upstream gradient is the gradient of the rotation.
OpCase gradient_case() {
  constexpr int64_t kRows = 5, kHeads = 2, kHeadDim = 12;
  OpCase c = rotation(kRows, kHeads, kHeadDim, 9, true);
  const int64_t ld = c.args[0].shape[1];
  Frequencies f = frequencies(kHeadDim / 2);
  c.name = "gradient";
  c.args.insert(c.args.begin(), Arg{"dx", Arg::value, Arg::output, {kRows, ld}, {}});
  c.args[1] = {"dy", Arg::value, Arg::input, {kRows, ld}, random_normal(kRows * ld, 3)};
  c.args.push_back({"x", Arg::value, Arg::input, {kRows, ld}, random_normal(kRows * ld, 4)});
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    s.copy(a[0], a[1]);
    rope(s, Rows(a[0]).columns(0, kHeads * kHeadDim), a[2], place(s, f, temp), kHeads, true);
  };
  auto naive = c.reference;
  c.reference = [naive](Arrays& a) {
    Arrays in{a[1], a[2]};
    naive(in);
    a[0] = in[0];
  };
  c.gradient.forward = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor y = temp.push(a[3].dtype, a[3].shape);
    s.copy(y, a[3]);
    rope(s, Rows(y).columns(0, kHeads * kHeadDim), a[2], place(s, f, temp), kHeads, false);
    return std::vector{y};
  };
  c.gradient.upstream = {1};
  c.gradient.pairs = {{3, 0}};
  return c;
}

}  // namespace

std::vector<OpCase> rope_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench)
    return {rotation(kTokens, kHeads, kHeadDim, kLength, false), rotation(kTokens, kHeads, kHeadDim, kLength, true)};
  return {rotation(1, 1, 2, 4, false),
          rotation(37, 3, 20, 40, false),
          rotation(65, 2, 64, 131073, false),
          rotation(9, 2, 272, 2000000, false),
          rotation(37, 3, 96, 40, true),
          rotation(7, 19, 16, 90, true, 16),
          gradient_case()};
}

}  // namespace chiron
