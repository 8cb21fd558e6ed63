#include "ops/linear/linear.h"

#include "ops/all_cases.h"
#include "ops/gemm/gemm.h"

namespace chiron {
namespace {

// Rows of arrays that have `pad` columns more than the op is shown, the first of them in front.
Rows inner(const Tensor& t, int64_t pad) { return pad ? Rows(t).columns(1, t.cols() - pad) : Rows(t); }

Arg result(std::string name, Arg::Kind kind, Shape shape, bool keeps) {
  if (!keeps) return {std::move(name), kind, Arg::output, shape, {}};
  return {std::move(name), kind, Arg::inout, shape, random_normal(shape.numel(), 1)};
}

Arg input(std::string name, Shape shape, uint32_t seed) {
  return {std::move(name), Arg::value, Arg::input, shape, random_normal(shape.numel(), seed)};
}

/// A strided view of an array of a case, for references.
struct Matrix {
  std::vector<double>& v;
  int64_t ld;
  int64_t offset = 0;
  double& operator()(int64_t i, int64_t j) { return v[static_cast<size_t>(i * ld + j + offset)]; }
};

struct Product {
  int64_t m, n, k;
  Op a = Op::none, b = Op::none;
  Accum accum = Accum::overwrite;
  int64_t pad = 0;
  bool wide = false;  // C has acc_dtype of the operands
};

OpCase product(Product p) {
  OpCase c{.op = "gemm",
           .name = fmt::format("M{} N{} K{} {}{}{}{}{}", p.m, p.n, p.k, p.a == Op::none ? 'n' : 't',
                               p.b == Op::none ? 'n' : 't', p.accum == Accum::add ? " add" : "", p.pad ? " ld" : "",
                               p.wide ? " wide" : ""),
           .product = true};
  const Shape a = p.a == Op::none ? Shape{p.m, p.k + p.pad} : Shape{p.k, p.m + p.pad};
  const Shape b = p.b == Op::none ? Shape{p.k, p.n + p.pad} : Shape{p.n, p.k + p.pad};
  c.args = {result("c", p.wide ? Arg::accum : Arg::value, {p.m, p.n + p.pad}, p.accum == Accum::add || p.pad),
            input("a", a, 2), input("b", b, 3)};
  c.run = [p](Stream& s, const std::vector<Tensor>& t, Stack& temp) {
    gemm(s, inner(t[0], p.pad), p.accum, inner(t[1], p.pad), p.a, inner(t[2], p.pad), p.b, temp);
  };
  c.reference = [p, a, b](Arrays& t) {
    const int64_t at = p.pad ? 1 : 0;
    Matrix mc{t[0], p.n + p.pad, at}, ma{t[1], a[1], at}, mb{t[2], b[1], at};
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = p.accum == Accum::add ? mc(i, j) : 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += (p.a == Op::none ? ma(i, k) : ma(k, i)) * (p.b == Op::none ? mb(k, j) : mb(j, k));
        mc(i, j) = sum;
      }
  };
  return c;
}

struct Layer {
  int64_t tokens, in, out;
  bool bias = false;
  enum Residual : uint8_t { none, apart, same } residual = none;  // same: y is the residual
  int64_t pad = 0;
};

OpCase forward(Layer z) {
  OpCase c{.op = "linear",
           .name = fmt::format("T{} I{} O{}{}{}{}", z.tokens, z.in, z.out, z.bias ? " bias" : "",
                               z.residual == Layer::none    ? ""
                               : z.residual == Layer::apart ? " residual"
                                                            : " in place",
                               z.pad ? " ld" : ""),
           .product = true};
  c.args = {result("y", Arg::value, {z.tokens, z.out + z.pad}, z.residual == Layer::same || z.pad),
            input("x", {z.tokens, z.in}, 2), input("w", {z.out, z.in}, 3), input("bias", {z.out}, 4),
            input("residual", {z.tokens, z.out}, 5)};
  c.run = [z](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    View residual = z.residual == Layer::none ? View{} : z.residual == Layer::same ? View(a[0]) : View(a[4]);
    linear(s, inner(a[0], z.pad), a[1], a[2], z.bias ? View(a[3]) : View{}, residual, temp);
  };
  c.reference = [z](Arrays& a) {
    Matrix y{a[0], z.out + z.pad, z.pad ? 1 : 0}, x{a[1], z.in}, w{a[2], z.in}, residual{a[4], z.out};
    for (int64_t t = 0; t < z.tokens; ++t)
      for (int64_t o = 0; o < z.out; ++o) {
        double sum = z.bias ? a[3][static_cast<size_t>(o)] : 0;
        if (z.residual == Layer::apart) sum += residual(t, o);
        if (z.residual == Layer::same) sum += y(t, o);
        for (int64_t i = 0; i < z.in; ++i) sum += x(t, i) * w(o, i);
        y(t, o) = sum;
      }
  };
  return c;
}

enum class Wrt : uint8_t { input, weight, bias };

OpCase backward(Wrt wrt, Layer z, Accum accum, bool differences) {
  const bool add = accum == Accum::add;
  const char* op = wrt == Wrt::input    ? "linear_backward_input"
                   : wrt == Wrt::weight ? "linear_backward_weight"
                                        : "linear_backward_bias";
  OpCase c{.op = op,
           .name = fmt::format("T{} I{} O{}{}{}", z.tokens, z.in, z.out, add ? " add" : "", z.pad ? " ld" : ""),
           .product = true};
  Shape shape = wrt == Wrt::input ? Shape{z.tokens, z.in} : wrt == Wrt::weight ? Shape{z.out, z.in} : Shape{z.out};
  c.args = {result("d", wrt == Wrt::input ? Arg::value : Arg::accum, shape, add),
            input("dy", {z.tokens, z.out + z.pad}, 2), input("x", {z.tokens, z.in}, 3), input("w", {z.out, z.in}, 4),
            input("bias", {z.out}, 5)};
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Rows dy = inner(a[1], z.pad);
    if (wrt == Wrt::input) linear_backward_input(s, a[0], accum, dy, a[3], temp);
    if (wrt == Wrt::weight) linear_backward_weight(s, a[0], accum, dy, a[2], temp);
    if (wrt == Wrt::bias) linear_backward_bias(s, a[0], accum, dy, temp);
  };
  c.reference = [=](Arrays& a) {
    if (!add) std::fill(a[0].begin(), a[0].end(), 0.0);
    Matrix dy{a[1], z.out + z.pad, z.pad ? 1 : 0}, x{a[2], z.in}, w{a[3], z.in}, d{a[0], z.in};
    for (int64_t t = 0; t < z.tokens; ++t)
      for (int64_t o = 0; o < z.out; ++o) {
        if (wrt == Wrt::bias) a[0][static_cast<size_t>(o)] += dy(t, o);
        for (int64_t i = 0; i < z.in; ++i) {
          if (wrt == Wrt::input) d(t, i) += dy(t, o) * w(o, i);
          if (wrt == Wrt::weight) d(o, i) += dy(t, o) * x(t, i);
        }
      }
  };
  if (!differences) return c;
  // With padding, the upstream of the columns around dy must not count: they belong to no output.
  CHECK(z.pad == 0);
  c.gradient.forward = [](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor y = temp.push(a[1].dtype, a[1].shape);
    linear(s, y, a[2], a[3], a[4], {}, temp);
    return std::vector{y};
  };
  c.gradient.upstream = {1};
  c.gradient.pairs = {{wrt == Wrt::input ? 2 : wrt == Wrt::weight ? 3 : 4, 0}};
  return c;
}

}  // namespace

std::vector<OpCase> linear_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench) {
    std::vector<OpCase> bench = {forward({1, kWidth, kHidden, true})};
    for (const Layer& z : {Layer{kTokens, kWidth, 3 * kWidth, true}, Layer{kTokens, kWidth, kWidth, true, Layer::apart},
                           Layer{kTokens, kWidth, kHidden, true}, Layer{kTokens, kHidden, kWidth, true, Layer::apart},
                           Layer{kTokens, kWidth, kBytes}, Layer{kFewTokens, kWidth, kVocabulary}}) {
      bench.push_back(forward(z));
      for (Wrt wrt : {Wrt::input, Wrt::weight, Wrt::bias})
        if (wrt != Wrt::bias || z.bias) bench.push_back(backward(wrt, z, Accum::overwrite, false));
    }
    return bench;
  }
  std::vector<OpCase> cases;
  for (Op a : {Op::none, Op::transpose})
    for (Op b : {Op::none, Op::transpose})
      for (Accum accum : {Accum::overwrite, Accum::add}) {
        cases.push_back(product({1, 1, 1, a, b, accum}));
        cases.push_back(product({37, 1, 19, a, b, accum}));
        cases.push_back(product({1, 53, 7, a, b, accum}));
        cases.push_back(product({37, 53, 61, a, b, accum, 3}));
        cases.push_back(product({37, 53, 0, a, b, accum, 3}));
      }
  cases.push_back(product({0, 5, 3}));
  cases.push_back(product({5, 0, 3, Op::none, Op::none, Accum::overwrite, 3}));
  cases.push_back(product({37, 160, 832, Op::none, Op::transpose}));
  // Beyond one panel of widened operands in each direction.
  cases.push_back(product({1030, 9, 800, Op::none, Op::transpose, Accum::add}));
  cases.push_back(product({9, 1030, 800, Op::none, Op::none}));
  cases.push_back(product({1030, 9, 1601, Op::transpose, Op::none, Accum::add, 0, true}));
  cases.push_back(product({9, 1030, 1601, Op::transpose, Op::none, Accum::overwrite, 3, true}));

  for (int64_t tokens : {1, 2, 3, 4, 5, 37})
    for (Layer::Residual residual : {Layer::none, Layer::apart, Layer::same})
      for (bool bias : {false, true}) cases.push_back(forward({tokens, 45, 50, bias, residual}));
  cases.push_back(forward({1, 1, 1, true}));
  cases.push_back(forward({1, 1600, 832, true, Layer::same}));
  cases.push_back(forward({37, 832, 160, true, Layer::apart}));
  cases.push_back(forward({1030, 20, 33, true, Layer::same}));
  cases.push_back(forward({3, 33, 40, true, Layer::apart, 4}));
  cases.push_back(forward({37, 33, 40, true, Layer::apart, 4}));

  for (Wrt wrt : {Wrt::input, Wrt::weight, Wrt::bias})
    for (Accum accum : {Accum::overwrite, Accum::add}) {
      cases.push_back(backward(wrt, {1, 1, 1}, accum, true));
      cases.push_back(backward(wrt, {1, 9, 14}, accum, true));
      cases.push_back(backward(wrt, {7, 9, 14}, accum, true));
      cases.push_back(backward(wrt, {37, 83, 60, false, Layer::none, 3}, accum, false));
    }
  cases.push_back(backward(Wrt::bias, {200, 1, 1100}, Accum::overwrite, false));
  return cases;
}

}  // namespace chiron
