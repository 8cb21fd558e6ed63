#include "ops/all_cases.h"
#include "ops/dropout/dropout.h"

namespace chiron {
namespace {

/// y[t, c] = kept(t, c) x[t, c] / (1 - p), straight from the rule in the header.
void naive(std::vector<double>& y, const std::vector<double>& x, const std::vector<double>& index, int64_t cols,
           const Dropout& d) {
  for (size_t i = 0; i < x.size(); ++i) {
    auto column = static_cast<uint32_t>(d.first_column + static_cast<int64_t>(i) % cols);
    auto token = static_cast<uint32_t>(index[i / static_cast<size_t>(cols)]);
    bool dropped = philox({token, column / 4, 0, 0}, d.key.key())[column % 4] < drop_threshold(d.p);
    y[i] = dropped ? 0 : x[i] / (1 - static_cast<double>(d.p));
  }
}

struct Setting {
  float p;
  int64_t first_column;
};

Dropout make(const Setting& setting, const StepScalars* step, View index) {
  return {
      .p = setting.p, .key = {.step = step, .unit = 3, .op = 1}, .index = index, .first_column = setting.first_column};
}

StepScalars some_step() {
  StepScalars step;
  step.seed = 0x123456789abcdefu;
  step.step = 7;
  return step;
}

enum class Alias { none, x, residual };

OpCase forward(int64_t rows, int64_t cols, Setting setting, bool with_residual, Alias alias = Alias::none) {
  OpCase c{.op = "dropout",
           .name = fmt::format("T{} C{} p {}{}{}", rows, cols, setting.p, with_residual ? " residual" : "",
                               alias == Alias::none ? ""
                               : alias == Alias::x  ? " y is x"
                                                    : " y is residual")};
  auto n = rows * cols;
  c.args = {{"y", Arg::value, Arg::output, {rows, cols}, {}},
            {"x", Arg::value, Arg::input, {rows, cols}, random_normal(n, 1)},
            {"residual", Arg::value, Arg::input, {rows, cols}, random_normal(n, 2)},
            {"index", Arg::ids, Arg::input, {rows}, random_ids(rows, 1 << 20, 3)}};
  if (alias != Alias::none) {
    c.args[0].role = Arg::inout;
    c.args[0].contents = random_normal(n, alias == Alias::x ? 1 : 2);
  }
  const StepScalars step = some_step();
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    View residual = with_residual ? View(alias == Alias::residual ? a[0] : a[2]) : View{};
    dropout(s, a[0], alias == Alias::x ? a[0] : a[1], residual, make(setting, on_device(s, step, temp), a[3]));
  };
  c.reference = [=](Arrays& a) {
    naive(a[0], a[1], a[3], cols, make(setting, &step, {}));
    for (size_t i = 0; i < a[0].size() && with_residual; ++i) a[0][i] += a[2][i];
  };
  return c;
}

OpCase backward(int64_t rows, int64_t cols, Setting setting) {
  OpCase c{.op = "dropout_backward", .name = fmt::format("T{} C{} p {}", rows, cols, setting.p)};
  c.args = {{"dx", Arg::value, Arg::output, {rows, cols}, {}},
            {"dy", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 4)},
            {"x", Arg::value, Arg::input, {rows, cols}, random_normal(rows * cols, 5)},
            {"index", Arg::ids, Arg::input, {rows}, random_ids(rows, 1 << 20, 6)}};
  const StepScalars step = some_step();
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    dropout_backward(s, a[0], a[1], make(setting, on_device(s, step, temp), a[3]));
  };
  c.reference = [=](Arrays& a) { naive(a[0], a[1], a[3], cols, make(setting, &step, {})); };
  c.gradient.forward = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor y = temp.push(a[2].dtype, a[2].shape);
    dropout(s, y, a[2], {}, make(setting, &step, a[3]));
    return std::vector{y};
  };
  c.gradient.upstream = {1};
  c.gradient.pairs = {{2, 0}};
  return c;
}

}  // namespace

std::vector<OpCase> dropout_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench)
    return {forward(kTokens, kWidth, {0.1f, 0}, false), forward(kTokens, kWidth, {0.1f, 0}, true),
            backward(kTokens, kWidth, {0.1f, 0})};
  return {forward(1, 1, {0.5f, 0}, false),
          forward(7, 33, {0.1f, 0}, false),
          forward(33, 832, {0.1f, 0}, true),
          forward(5, 48, {0.3f, 6}, true, Alias::x),
          forward(5, 600, {0.9f, 4097}, true, Alias::residual),
          forward(3, 2049, {0.2f, 0}, false),
          backward(1, 1, {0.5f, 2}),
          backward(7, 33, {0.2f, 3})};
}

}  // namespace chiron
