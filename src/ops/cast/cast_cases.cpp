#include "ops/all_cases.h"
#include "ops/cast/cast.h"

namespace chiron {
namespace {

OpCase one(int64_t rows, int64_t cols, bool widen) {
  OpCase c{.op = "cast", .name = fmt::format("{}x{} {}", rows, cols, widen ? "widen" : "narrow")};
  c.args = {{"to", widen ? Arg::accum : Arg::value, Arg::output, {rows, cols}, {}},
            {"from", widen ? Arg::value : Arg::accum, Arg::input, {rows, cols}, random_normal(rows * cols, 1, 3)}};
  c.run = [](Stream& s, const std::vector<Tensor>& a, Stack&) { cast(s, a[0], a[1]); };
  c.reference = [](Arrays& a) { a[0] = a[1]; };
  return c;
}

}  // namespace

std::vector<OpCase> cast_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench) return {one(kTokens, kHidden, true), one(kTokens, kHidden, false)};
  return {one(1, 1, true), one(1, 1, false), one(37, 833, true), one(37, 833, false), one(80, 1600, false)};
}

}  // namespace chiron
