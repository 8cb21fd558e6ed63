#include "ops/all_cases.h"
#include "ops/residual/residual.h"

namespace chiron {
namespace {

OpCase apart(int64_t rows, int64_t cols) {
  OpCase c{.op = "add", .name = fmt::format("T{} C{}", rows, cols)};
  c.args = {{"y", Arg::value, Arg::output, {rows, cols}, {}},
            {"a", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 1)},
            {"b", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 2)}};
  c.run = [](Stream& s, const std::vector<Tensor>& a, Stack&) { add(s, a[0], a[1], a[2]); };
  c.reference = [](Arrays& a) {
    for (size_t i = 0; i < a[0].size(); ++i) a[0][i] = a[1][i] + a[2][i];
  };
  return c;
}

OpCase in_place(int64_t rows, int64_t cols, bool first) {
  OpCase c{.op = "add", .name = fmt::format("T{} C{} y is {}", rows, cols, first ? "a" : "b")};
  c.args = {{"y", Arg::value, Arg::inout, {rows, cols}, random_normal(rows * cols, 3)},
            {"other", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 4)}};
  c.run = [first](Stream& s, const std::vector<Tensor>& a, Stack&) {
    if (first)
      add(s, a[0], a[0], a[1]);
    else
      add(s, a[0], a[1], a[0]);
  };
  c.reference = [](Arrays& a) {
    for (size_t i = 0; i < a[0].size(); ++i) a[0][i] += a[1][i];
  };
  return c;
}

}  // namespace

std::vector<OpCase> residual_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench) return {in_place(kTokens, kWidth, true)};
  return {apart(1, 1), apart(7, 33), apart(65, 832), in_place(7, 33, true), in_place(65, 832, false)};
}

}  // namespace chiron
