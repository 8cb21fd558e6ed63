#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/all_cases.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace chiron {
namespace {

/// Labels below `vocab`, about a third of them ignored (the first one never).
std::vector<double> some_labels(int64_t rows, int64_t vocab, uint32_t seed) {
  auto labels = random_ids(rows, vocab, seed), dice = random_ids(rows, 3, seed + 1);
  for (size_t i = 1; i < labels.size(); ++i)
    if (dice[i] == 0) labels[i] = kIgnore;
  return labels;
}

struct Setting {
  int64_t rows, cols, ld;
  float smoothing;
  bool cut = false;  ///< by the ops for a vocabulary that is cut over ranks
};

std::string name_of(const Setting& t) {
  return fmt::format("T{} V{} ld {} e {}{}", t.rows, t.cols, t.ld, t.smoothing, t.cut ? " cut" : "");
}

Rows without_padding(const Tensor& t, int64_t cols) { return Rows(t).columns(0, cols); }

/// Loss and gradient together, the training form: logits in, scale times their gradient out.
OpCase training(Setting t) {
  OpCase c{.op = "cross_entropy", .name = name_of(t)};
  CrossEntropyShape shape{.vocab = t.cols, .first = 0, .label_smoothing = t.smoothing};
  c.args = {{"losses", Arg::accum, Arg::output, {t.rows}, {}},
            {"logits", Arg::value, Arg::inout, {t.rows, t.ld}, random_normal(t.rows * t.ld, 1, 3)},
            {"labels", Arg::ids, Arg::input, {t.rows}, some_labels(t.rows, t.cols, 2)},
            {"scale", Arg::accum, Arg::input, {1}, {0.375}}};
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Rows logits = without_padding(a[1], t.cols);
    if (!t.cut) return cross_entropy(s, a[0], logits, t.ld, a[2], a[3], shape, temp);
    Scope scope(temp);
    Tensor stat = temp.push(a[0].dtype, {t.rows, 4});
    cross_entropy_partial(s, stat, logits, a[2], shape);
    cross_entropy_finish(s, a[0], logits, t.ld, a[2], stat, a[3], shape);
  };
  c.reference = [=](Arrays& a) {
    for (int64_t r = 0; r < t.rows; ++r) {
      double* x = a[1].data() + r * t.ld;
      auto row = static_cast<size_t>(r);
      a[0][row] = 0;
      double norm = 0;
      for (int64_t v = 0; v < t.cols; ++v) norm += std::exp(x[v]);
      for (int64_t v = 0; v < t.ld; ++v) {
        double p = std::exp(x[v]) / norm;
        double target = (static_cast<double>(v) == a[2][row] ? 1 - static_cast<double>(t.smoothing) : 0) +
                        static_cast<double>(t.smoothing) / static_cast<double>(t.cols);
        bool counts = v < t.cols && a[2][row] != kIgnore;
        if (counts) a[0][row] -= target * std::log(p);
        x[v] = counts ? a[3][0] * (p - target) : 0;
      }
    }
  };
  return c;
}

/// The form without gradients: logits are only read. Its gradient check covers the training form's gradient.
OpCase evaluation(Setting t) {
  OpCase c{.op = "cross_entropy", .name = name_of(t) + " evaluation"};
  CrossEntropyShape shape{.vocab = t.cols, .first = 0, .label_smoothing = t.smoothing};
  c.args = {{"losses", Arg::accum, Arg::output, {t.rows}, {}},
            {"logits", Arg::value, Arg::input, {t.rows, t.ld}, random_normal(t.rows * t.ld, 1, 3)},
            {"labels", Arg::ids, Arg::input, {t.rows}, some_labels(t.rows, t.cols, 2)},
            {"scale", Arg::accum, Arg::input, {1}, {0.375}},
            {"ones", Arg::accum, Arg::input, {t.rows}, std::vector<double>(static_cast<size_t>(t.rows), 0.375)},
            {"dlogits", Arg::value, Arg::output, {t.rows, t.ld}, {}}};
  auto losses_only = [=](Stream& s, Tensor losses, const std::vector<Tensor>& a, Stack& temp) {
    Tensor stat = temp.push(losses.dtype, {t.rows, 4});
    Rows logits = without_padding(a[1], t.cols);
    cross_entropy_partial(s, stat, logits, a[2], shape);
    cross_entropy_finish(s, losses, logits, t.cols, a[2], stat, {}, shape);
  };
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    losses_only(s, a[0], a, temp);
    if (!s.dry()) s.copy(a[5], a[1]);
    Tensor stat = temp.push(a[0].dtype, {t.rows, 4});
    Tensor losses = temp.push(a[0].dtype, {t.rows});
    Rows d = without_padding(a[5], t.cols);
    cross_entropy_partial(s, stat, d, a[2], shape);
    cross_entropy_finish(s, losses, d, t.ld, a[2], stat, a[3], shape);
  };
  c.gradient.forward = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor losses = temp.push(a[0].dtype, a[0].shape);
    losses_only(s, losses, a, temp);
    return std::vector{losses};
  };
  c.gradient.upstream = {4};
  c.gradient.pairs = {{1, 5}};
  return c;
}

OpCase combine(int64_t parts, int64_t rows) {
  OpCase c{.op = "cross_entropy_combine", .name = fmt::format("{} parts T{}", parts, rows)};
  auto contents = random_normal(parts * rows * 4, 5);
  for (size_t i = 1; i < contents.size(); i += 4) contents[i] = std::abs(contents[i]) + 1;
  c.args = {{"stat", Arg::accum, Arg::output, {rows, 4}, {}},
            {"parts", Arg::accum, Arg::input, {parts, rows, 4}, contents}};
  c.run = [](Stream& s, const std::vector<Tensor>& a, Stack&) { cross_entropy_combine(s, a[0], a[1]); };
  c.reference = [=](Arrays& a) {
    for (int64_t r = 0; r < rows; ++r) {
      double* out = a[0].data() + 4 * r;
      out[0] = -std::numeric_limits<double>::infinity();
      double weight = out[1] = out[2] = out[3] = 0;
      for (int64_t p = 0; p < parts; ++p) {
        const double* in = a[1].data() + 4 * (p * rows + r);
        out[0] = std::max(out[0], in[0]);
        weight += in[1] * std::exp(in[0]);
        out[2] += in[2];
        out[3] += in[3];
      }
      out[1] = weight / std::exp(out[0]);
    }
  };
  return c;
}

OpCase sum(int64_t n, bool overwrite) {
  OpCase c{.op = "sum_losses", .name = fmt::format("T{}{}", n, overwrite ? "" : " add")};
  c.args = {{"sum",
             Arg::accum,
             overwrite ? Arg::output : Arg::inout,
             {1},
             overwrite ? std::vector<double>{} : std::vector<double>{3}},
            {"losses", Arg::accum, Arg::input, {n}, random_normal(n, 6, 1, 4)}};
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack&) { sum_losses(s, a[0], overwrite, a[1]); };
  c.reference = [=](Arrays& a) {
    double total = overwrite ? 0 : a[0][0];
    for (double x : a[1]) total += x;
    a[0][0] = total;
  };
  return c;
}

OpCase count(int64_t n, bool overwrite) {
  OpCase c{.op = "count_labels", .name = fmt::format("T{}{}", n, overwrite ? "" : " add")};
  c.args = {{"count",
             Arg::ids,
             overwrite ? Arg::output : Arg::inout,
             {1},
             overwrite ? std::vector<double>{} : std::vector<double>{11}},
            {"labels", Arg::ids, Arg::input, {n}, some_labels(n, 50, 7)}};
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack&) { count_labels(s, a[0], overwrite, a[1]); };
  c.reference = [=](Arrays& a) {
    double total = overwrite ? 0 : a[0][0];
    for (double label : a[1])
      if (label >= 0) ++total;
    a[0][0] = total;
  };
  return c;
}

}  // namespace

std::vector<OpCase> cross_entropy_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench)
    return {training({kTokens, kBytes, kBytes, 0}), training({kFewTokens, kVocabulary, kVocabulary, 0}),
            evaluation({kFewTokens, kVocabulary, kVocabulary, 0}), sum(kTokens, true), count(kTokens, true)};
  return {training({1, 1, 1, 0}),
          training({7, 33, 48, 0}),
          training({5, 832, 832, 0.1f}),
          training({3, 1500, 1536, 0}),
          training({9, 40, 41, 0.25f}),
          training({2, 2051, 2056, 0.1f}),
          training({2, 4200, 4203, 0}),
          training({5, 832, 832, 0.1f, true}),
          training({2, 2051, 2056, 0, true}),
          evaluation({7, 33, 40, 0}),
          evaluation({4, 600, 600, 0.1f}),
          combine(1, 3),
          combine(3, 33),
          sum(1, true),
          sum(9001, true),
          sum(33, false),
          count(1, true),
          count(1001, false)};
}

}  // namespace chiron
