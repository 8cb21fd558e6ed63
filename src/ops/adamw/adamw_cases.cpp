#include <cmath>
#include <memory>

#include "ops/adamw/adamw.h"
#include "ops/all_cases.h"

namespace chiron {
namespace {

struct Setting {
  int64_t n;
  int64_t applied;
  bool decay, finite;
};

OpCase update(Setting t) {
  OpCase c{.op = "adamw",
           .name = fmt::format("N{} t {}{}{}", t.n, t.applied, t.decay ? " decay" : "", t.finite ? "" : " skipped")};
  c.f32_only = true;
  auto v = random_normal(t.n, 4, 0.01);
  for (double& x : v) x = x * x;
  c.args = {{"master", Arg::accum, Arg::inout, {t.n}, random_normal(t.n, 1)},
            {"m", Arg::accum, Arg::inout, {t.n}, random_normal(t.n, 2, 0.1)},
            {"v", Arg::accum, Arg::inout, {t.n}, v},
            {"grad", Arg::accum, Arg::input, {t.n}, random_normal(t.n, 3)}};
  auto scalars = std::make_shared<StepScalars>();
  scalars->learning_rate = 0.01f;
  scalars->clip_factor = 0.5f;
  scalars->applied = t.applied;
  scalars->finite = t.finite;
  const AdamWOptions options;
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    const Shard shard{.master = a[0], .grad = a[3], .m = a[1], .v = a[2], .decay = t.decay};
    adamw(s, on_device(s, *scalars, temp), make_shards(s, temp, {&shard, 1}), options);
  };
  c.reference = [=](Arrays& a) {
    if (!t.finite) return;
    const double lr = scalars->learning_rate, b1 = options.beta1, b2 = options.beta2, eps = options.eps;
    for (size_t i = 0; i < a[0].size(); ++i) {
      double g = a[3][i] * static_cast<double>(scalars->clip_factor);
      double m = a[1][i] = b1 * a[1][i] + (1 - b1) * g, s = a[2][i] = b2 * a[2][i] + (1 - b2) * g * g;
      double step = m / (1 - std::pow(b1, t.applied)) / (std::sqrt(s / (1 - std::pow(b2, t.applied))) + eps);
      a[0][i] -= lr * (step + (t.decay ? static_cast<double>(options.weight_decay) * a[0][i] : 0));
    }
  };
  return c;
}

}  // namespace

std::vector<OpCase> adamw_cases(CaseUse use) {
  using namespace bench_size;
  constexpr int64_t kBlock = 12 * kWidth * kWidth;  // the weights of a block
  if (use == CaseUse::bench) return {update({kBlock, 1000, true, true})};
  return {update({1, 1, true, true}), update({33, 3, false, true}), update({40001, 1000, true, true}),
          update({33, 3, true, false})};
}

}  // namespace chiron
