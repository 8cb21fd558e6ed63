#include <cmath>
#include <limits>

#include "ops/all_cases.h"
#include "ops/attention/attention.h"

namespace chiron {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Setup {
  const char* name;
  AttentionShape shape;
  float p = 0;
  bool documents = false;
  int64_t margin = 3;  ///< columns beside the heads, which must stay as they are
  bool gradient = false;
};

StepScalars scalars() {
  StepScalars s;
  s.seed = 77;
  s.step = 5;
  return s;
}

/// Sizes and places of the elements of one setup.
struct Layout {
  Setup setup;
  AttentionShape a;
  StepScalars step = scalars();

  explicit Layout(const Setup& s) : setup(s), a(s.shape) {
    if (a.scale == 0) a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.head_dim)));
  }
  int64_t num_queries() const { return a.sequences * a.q_length; }
  int64_t stride() const { return a.k_stride ? a.k_stride : a.k_length; }
  int64_t num_keys() const { return a.sequences * stride(); }
  Shape q_shape() const { return {num_queries(), a.heads * a.head_dim + setup.margin}; }
  Shape k_shape() const { return {num_keys(), a.kv_heads * a.head_dim + setup.margin}; }
  size_t q_at(int64_t row, int64_t head, int64_t d) const {
    return static_cast<size_t>(row * q_shape()[1] + head * a.head_dim + d);
  }
  size_t k_at(int64_t sequence, int64_t j, int64_t head, int64_t d) const {
    return static_cast<size_t>((sequence * stride() + j) * k_shape()[1] + head / (a.heads / a.kv_heads) * a.head_dim +
                               d);
  }
  Rows q_rows(Tensor t) const { return Rows(t).columns(0, a.heads * a.head_dim); }
  Rows k_rows(Tensor t) const { return Rows(t).columns(0, a.kv_heads * a.head_dim); }

  AttentionShape shape(Tensor starts) const {
    AttentionShape with = a;
    if (setup.documents) with.starts = starts;
    return with;
  }
  AttentionDropout dropout(Tensor index, const StepScalars* step) const {
    AttentionDropout d;
    d.p = setup.p;
    d.key = {step, 3, 2};
    d.index = index;
    d.first_head = 5;
    return d;
  }
  Arg starts() const {
    Arg s{"starts", Arg::ids, Arg::input, {num_queries()}, {}};
    // Documents of 11 tokens, and one that begins in the middle of what a cache holds.
    for (int64_t r = 0; r < num_queries(); ++r)
      s.contents.push_back(static_cast<double>((a.q_offset + r % a.q_length) / 11 * 11));
    return s;
  }
  Arg index() const { return {"index", Arg::ids, Arg::input, {num_queries()}, random_ids(num_queries(), 100000, 9)}; }

  bool sees(const std::vector<double>& starts, int64_t row, int64_t j) const {
    double i = static_cast<double>(a.q_offset + row % a.q_length), key = static_cast<double>(a.k_offset + j);
    double from = setup.documents ? starts[static_cast<size_t>(row)] : 0;
    return key <= i && key >= from && (a.window == 0 || i - key < static_cast<double>(a.window));
  }
  /// 0 or 1 / (1 - p).
  double keep(const std::vector<double>& index, int64_t row, int64_t head, int64_t j) const {
    if (setup.p == 0) return 1;
    auto offset = static_cast<uint32_t>(a.k_offset + j);
    auto words =
        philox({static_cast<uint32_t>(index[static_cast<size_t>(row)]), offset / 4, static_cast<uint32_t>(5 + head), 0},
               RandomKey{&step, 3, 2}.key());
    return words[offset % 4] < drop_threshold(setup.p) ? 0 : 1 / (1 - static_cast<double>(setup.p));
  }
  double score(const std::vector<double>& q, const std::vector<double>& k, int64_t row, int64_t head, int64_t j) const {
    double sum = 0;
    for (int64_t d = 0; d < a.head_dim; ++d) sum += q[q_at(row, head, d)] * k[k_at(row / a.q_length, j, head, d)];
    return sum * static_cast<double>(a.scale);
  }
};

OpCase forward(const Setup& setup) {
  Layout l(setup);
  OpCase c{.op = "attention", .name = setup.name};
  auto q = l.q_shape(), k = l.k_shape();
  c.args = {{"o", Arg::value, Arg::inout, q, random_normal(q.numel(), 1)},
            {"lse", Arg::accum, Arg::output, {l.num_queries(), l.a.heads}, {}},
            {"q", Arg::value, Arg::input, q, random_normal(q.numel(), 2, 1.5)},
            {"k", Arg::value, Arg::input, k, random_normal(k.numel(), 3)},
            {"v", Arg::value, Arg::input, k, random_normal(k.numel(), 4)},
            l.starts(),
            l.index()};
  c.product = true;
  c.run = [l](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    attention(s, l.q_rows(a[0]), a[1], l.q_rows(a[2]), l.k_rows(a[3]), l.k_rows(a[4]), l.shape(a[5]),
              l.dropout(a[6], on_device(s, l.step, temp)), temp);
  };
  c.reference = [l](Arrays& a) {
    const AttentionShape& n = l.a;
    for (int64_t row = 0; row < l.num_queries(); ++row)
      for (int64_t h = 0; h < n.heads; ++h) {
        std::vector<double> score(static_cast<size_t>(n.k_length), -kInfinity);
        double top = -kInfinity, sum = 0;
        for (int64_t j = 0; j < n.k_length; ++j)
          if (l.sees(a[5], row, j)) {
            score[static_cast<size_t>(j)] = l.score(a[2], a[3], row, h, j);
            top = std::fmax(top, score[static_cast<size_t>(j)]);
          }
        for (double x : score) sum += x == -kInfinity ? 0 : std::exp(x - top);
        a[1][static_cast<size_t>(row * n.heads + h)] = sum == 0 ? -kInfinity : top + std::log(sum);
        for (int64_t d = 0; d < n.head_dim; ++d) a[0][l.q_at(row, h, d)] = 0;
        for (int64_t j = 0; j < n.k_length; ++j) {
          if (!l.sees(a[5], row, j)) continue;
          double weight = std::exp(score[static_cast<size_t>(j)] - top) / sum * l.keep(a[6], row, h, j);
          for (int64_t d = 0; d < n.head_dim; ++d)
            a[0][l.q_at(row, h, d)] += weight * a[4][l.k_at(row / n.q_length, j, h, d)];
        }
      }
  };
  return c;
}

OpCase backward(const Setup& setup) {
  Layout l(setup);
  OpCase c{.op = "attention_backward", .name = setup.name};
  auto q = l.q_shape(), k = l.k_shape();
  auto result = [&](const char* name, Shape shape, uint32_t seed) {
    return setup.gradient ? Arg{name, Arg::value, Arg::output, shape, {}}
                          : Arg{name, Arg::value, Arg::inout, shape, random_normal(shape.numel(), seed)};
  };
  c.args = {result("dq", q, 1),
            result("dk", k, 2),
            result("dv", k, 3),
            {"do", Arg::value, Arg::input, q, random_normal(q.numel(), 4)},
            {"q", Arg::value, Arg::input, q, random_normal(q.numel(), 5, 1.5)},
            {"k", Arg::value, Arg::input, k, random_normal(k.numel(), 6)},
            {"v", Arg::value, Arg::input, k, random_normal(k.numel(), 7)},
            {"o", Arg::value, Arg::derived, q, {}},
            {"lse", Arg::accum, Arg::derived, {l.num_queries(), l.a.heads}, {}},
            l.starts(),
            l.index()};
  c.product = true;
  c.prepare = [l](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    attention(s, l.q_rows(a[7]), a[8], l.q_rows(a[4]), l.k_rows(a[5]), l.k_rows(a[6]), l.shape(a[9]),
              l.dropout(a[10], on_device(s, l.step, temp)), temp);
  };
  c.run = [l](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    attention_backward(s, l.q_rows(a[0]), l.k_rows(a[1]), l.k_rows(a[2]), l.q_rows(a[3]), l.q_rows(a[4]),
                       l.k_rows(a[5]), l.k_rows(a[6]), l.q_rows(a[7]), a[8], l.shape(a[9]),
                       l.dropout(a[10], on_device(s, l.step, temp)), temp);
  };
  c.reference = [l](Arrays& a) {
    const AttentionShape& n = l.a;
    for (int64_t b = 0; b < n.sequences; ++b)
      for (int64_t h = 0; h < n.heads; ++h)
        for (int64_t d = 0; d < n.head_dim; ++d) {
          for (int64_t t = 0; t < n.q_length; ++t) a[0][l.q_at(b * n.q_length + t, h, d)] = 0;
          for (int64_t j = 0; j < n.k_length; ++j) a[1][l.k_at(b, j, h, d)] = a[2][l.k_at(b, j, h, d)] = 0;
        }
    for (int64_t row = 0; row < l.num_queries(); ++row)
      for (int64_t h = 0; h < n.heads; ++h) {
        const int64_t b = row / n.q_length;
        double delta = 0;
        for (int64_t d = 0; d < n.head_dim; ++d) delta += a[3][l.q_at(row, h, d)] * a[7][l.q_at(row, h, d)];
        for (int64_t j = 0; j < n.k_length; ++j) {
          if (!l.sees(a[9], row, j)) continue;
          double p = std::exp(l.score(a[4], a[5], row, h, j) - a[8][static_cast<size_t>(row * n.heads + h)]);
          double keep = l.keep(a[10], row, h, j), up = 0;
          for (int64_t d = 0; d < n.head_dim; ++d) up += a[3][l.q_at(row, h, d)] * a[6][l.k_at(b, j, h, d)];
          double ds = p * (up * keep - delta) * static_cast<double>(n.scale);
          for (int64_t d = 0; d < n.head_dim; ++d) {
            a[0][l.q_at(row, h, d)] += ds * a[5][l.k_at(b, j, h, d)];
            a[1][l.k_at(b, j, h, d)] += ds * a[4][l.q_at(row, h, d)];
            a[2][l.k_at(b, j, h, d)] += p * keep * a[3][l.q_at(row, h, d)];
          }
        }
      }
  };
  if (!setup.gradient) return c;
  c.gradient.forward = [l](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor o = temp.push(a[4].dtype, a[4].shape);
    Tensor lse = temp.push(DType::f64, a[8].shape);
    attention(s, o, lse, a[4], a[5], a[6], l.shape(a[9]), l.dropout(a[10], &l.step), temp);
    return std::vector{o};
  };
  c.gradient.upstream = {3};
  c.gradient.pairs = {{4, 0}, {5, 1}, {6, 2}};
  return c;
}

OpCase merge(int64_t rows, int64_t heads, int64_t dim) {
  OpCase c{.op = "attention_merge", .name = fmt::format("T{} H{} D{}", rows, heads, dim)};
  auto o = random_normal(rows * heads * dim, 1), o2 = random_normal(rows * heads * dim, 2);
  auto lse = random_normal(rows * heads, 3, 3), lse2 = random_normal(rows * heads, 4, 3);
  auto see_nothing = [=](std::vector<double>& out, std::vector<double>& sum, int64_t i) {
    sum[static_cast<size_t>(i)] = -kInfinity;
    for (int64_t d = i * dim; d < (i + 1) * dim; ++d) out[static_cast<size_t>(d)] = 0;
  };
  for (int64_t i = 0; i < rows * heads; ++i) {
    if (i % 5 == 1 || i % 5 == 3) see_nothing(o, lse, i);
    if (i % 5 == 2 || i % 5 == 3) see_nothing(o2, lse2, i);
  }
  c.args = {{"o", Arg::value, Arg::inout, {rows, heads * dim}, o},
            {"lse", Arg::accum, Arg::inout, {rows, heads}, lse},
            {"o2", Arg::value, Arg::input, {rows, heads * dim}, o2},
            {"lse2", Arg::accum, Arg::input, {rows, heads}, lse2}};
  c.run = [heads](Stream& s, const std::vector<Tensor>& a, Stack&) {
    attention_merge(s, a[0], a[1], a[2], a[3], heads);
  };
  c.reference = [=](Arrays& a) {
    for (int64_t i = 0; i < rows * heads; ++i) {
      double x = std::exp(a[1][static_cast<size_t>(i)]), y = std::exp(a[3][static_cast<size_t>(i)]);
      a[1][static_cast<size_t>(i)] = std::log(x + y);
      for (int64_t d = i * dim; d < (i + 1) * dim; ++d) {
        auto at = static_cast<size_t>(d);
        a[0][at] = x + y == 0 ? 0 : (a[0][at] * x + a[2][at] * y) / (x + y);
      }
    }
  };
  return c;
}

AttentionShape shape(int64_t sequences, int64_t q_length, int64_t k_length, int64_t heads, int64_t kv_heads,
                     int64_t head_dim) {
  AttentionShape a;
  a.sequences = sequences, a.q_length = q_length, a.k_length = k_length;
  a.heads = heads, a.kv_heads = kv_heads, a.head_dim = head_dim;
  return a;
}

/// q_offset, k_offset, window, k_stride.
AttentionShape placed(AttentionShape a, int64_t q_offset, int64_t k_offset, int64_t window = 0, int64_t k_stride = 0) {
  a.q_offset = q_offset, a.k_offset = k_offset, a.window = window, a.k_stride = k_stride;
  return a;
}

std::vector<Setup> setups() {
  return {
      {"one token", shape(2, 1, 1, 2, 2, 16)},
      {"T37 D20", shape(2, 37, 37, 2, 2, 20)},
      {"T130 D64", shape(1, 130, 130, 2, 2, 64)},
      {"T130 D80 groups of 3", shape(1, 130, 130, 6, 2, 80)},
      {"T70 D96", shape(1, 70, 70, 1, 1, 96)},
      {"T66 D128 one kv head", shape(1, 66, 66, 2, 1, 128)},
      {"T40 D256", shape(1, 40, 40, 1, 1, 256)},
      {"window 1", placed(shape(1, 130, 130, 2, 2, 16), 0, 0, 1)},
      {"window 8", placed(shape(2, 130, 130, 2, 1, 32), 0, 0, 8)},
      {"documents", shape(2, 130, 130, 2, 2, 48), 0, true},
      {"one query of a cache", placed(shape(3, 1, 150, 4, 2, 64), 149, 0, 0, 200)},
      {"three queries of a cache, dropout", placed(shape(2, 3, 70, 2, 2, 40), 67, 0, 0, 71), 0.3f},
      {"chunk of a prompt", placed(shape(2, 33, 100, 2, 2, 32), 67, 0, 0, 110)},
      {"keys ahead of most queries", placed(shape(1, 90, 50, 2, 2, 32), 0, 37)},
      {"no key is seen", placed(shape(1, 20, 30, 1, 1, 16), 0, 64)},
      {"more keys than queries reach", placed(shape(1, 50, 200, 1, 1, 24), 3, 1)},
      {"dropout", shape(2, 70, 70, 2, 2, 32), 0.3f},
      {"whole rows, D64, dropout", shape(1, 150, 150, 2, 1, 64), 0.3f, true, 0},
      {"whole rows, D16, window within a tile", placed(shape(1, 200, 200, 1, 1, 16), 0, 0, 20), 0, true, 8},
      {"whole rows, D128, dropout", placed(shape(1, 70, 90, 2, 1, 128), 20, 3), 0.3f, false, 8},
      {"whole rows, D200", shape(1, 70, 70, 1, 1, 200), 0.2f, true, 0},
      {"one query, keys in parts", placed(shape(1, 1, 700, 2, 1, 80), 699, 0, 600, 800), 0, false, 0},
      {"two queries, keys in parts, dropout", placed(shape(1, 2, 530, 1, 1, 24), 528, 1), 0.3f, true},
      {"everything", placed(shape(2, 101, 140, 6, 3, 44), 52, 3, 30, 150), 0.3f, true},
  };
}

std::vector<Setup> gradient_setups() {
  return {
      {"gradient", shape(1, 7, 7, 2, 1, 6), 0, false, 0, true},
      {"gradient of one query", placed(shape(2, 1, 5, 2, 2, 4), 4, 0), 0, false, 0, true},
      {"gradient, everything", placed(shape(1, 23, 19, 2, 1, 5), 6, 2, 9), 0.3f, true, 0, true},
  };
}

}  // namespace

std::vector<OpCase> attention_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench) {
    const AttentionShape step = shape(kSequences, kLength, kLength, kHeads, kHeads, kHeadDim);
    const AttentionShape groups = shape(kSequences, kLength, kLength, kHeads, kHeads / 3, kHeadDim);
    const AttentionShape cached = placed(shape(1, 1, kTokens, kHeads, kHeads, kHeadDim), kTokens - 1, 0);
    return {forward({"step", step}),
            backward({"step", step}),
            forward({"step, dropout", step, 0.1f}),
            backward({"step, dropout", step, 0.1f}),
            forward({"step, groups of 3", groups}),
            backward({"step, groups of 3", groups}),
            forward({"one query of a cache", cached})};
  }
  std::vector<OpCase> cases;
  for (const Setup& s : setups()) {
    cases.push_back(forward(s));
    cases.push_back(backward(s));
  }
  for (const Setup& s : gradient_setups()) cases.push_back(backward(s));
  cases.push_back(merge(13, 3, 20));
  cases.push_back(merge(1, 1, 64));
  return cases;
}

}  // namespace chiron
