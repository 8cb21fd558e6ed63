#include <algorithm>
#include <numeric>

#include "ops/all_cases.h"
#include "ops/embedding/embedding.h"

namespace chiron {
namespace {

struct Sizes {
  int64_t tokens, rows, cols;
  int64_t first = 0;   // of the rows that the table holds
  int64_t vocabulary;  // ids are below it
};

std::string describe(const Sizes& z, Accum accum) {
  return fmt::format("T{} V{}+{} of {} C{}{}", z.tokens, z.first, z.rows, z.vocabulary, z.cols,
                     accum == Accum::add ? " add" : "");
}

Arg output(std::string name, Arg::Kind kind, Shape shape, Accum accum) {
  if (accum == Accum::overwrite) return {std::move(name), kind, Arg::output, shape, {}};
  return {std::move(name), kind, Arg::inout, shape, random_normal(shape.numel(), 1)};
}

OpCase forward(Sizes z, Accum accum) {
  OpCase c{.op = "embedding", .name = describe(z, accum)};
  c.args = {output("y", Arg::value, {z.tokens, z.cols}, accum),
            {"ids", Arg::ids, Arg::input, {z.tokens}, random_ids(z.tokens, z.vocabulary, 2)},
            {"w", Arg::value, Arg::input, {z.rows, z.cols}, random_normal(z.rows * z.cols, 3)}};
  c.f32_bytes = 4.0 * static_cast<double>(z.tokens * (2 * z.cols + 1));  // one row of the table for each id
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack&) { embedding(s, a[0], accum, a[1], a[2], z.first); };
  c.reference = [=](Arrays& a) {
    if (accum == Accum::overwrite) std::fill(a[0].begin(), a[0].end(), 0.0);
    for (int64_t t = 0; t < z.tokens; ++t)
      for (int64_t v = 0; v < z.rows; ++v)
        if (a[1][static_cast<size_t>(t)] == static_cast<double>(z.first + v))
          for (int64_t i = 0; i < z.cols; ++i)
            a[0][static_cast<size_t>(t * z.cols + i)] += a[2][static_cast<size_t>(v * z.cols + i)];
  };
  return c;
}

OpCase backward(Sizes z, Accum accum, bool differences) {
  OpCase c{.op = "embedding_backward", .name = describe(z, accum)};
  auto ids = random_ids(z.tokens, z.vocabulary, 2);
  std::vector<double> order(ids.size());
  std::iota(order.begin(), order.end(), 0.0);
  std::stable_sort(order.begin(), order.end(),
                   [&](double a, double b) { return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)]; });
  c.args = {output("dw", Arg::accum, {z.rows, z.cols}, accum),
            {"dy", Arg::value, Arg::input, {z.tokens, z.cols}, random_normal(z.tokens * z.cols, 4)},
            {"ids", Arg::ids, Arg::input, {z.tokens}, ids},
            {"order", Arg::ids, Arg::input, {z.tokens}, order},
            {"w", Arg::value, Arg::input, {z.rows, z.cols}, random_normal(z.rows * z.cols, 3)}};
  c.run = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    embedding_backward(s, a[0], accum, a[1], {a[2], a[3]}, z.first, temp);
  };
  c.reference = [=](Arrays& a) {
    if (accum == Accum::overwrite) std::fill(a[0].begin(), a[0].end(), 0.0);
    for (int64_t t = 0; t < z.tokens; ++t) {
      auto v = static_cast<int64_t>(a[2][static_cast<size_t>(t)]) - z.first;
      if (v < 0 || v >= z.rows) continue;
      for (int64_t i = 0; i < z.cols; ++i)
        a[0][static_cast<size_t>(v * z.cols + i)] += a[1][static_cast<size_t>(t * z.cols + i)];
    }
  };
  if (!differences) return c;
  c.gradient.forward = [=](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Tensor y = temp.push(a[1].dtype, a[1].shape);
    embedding(s, y, Accum::overwrite, a[2], a[4], z.first);
    return std::vector{y};
  };
  c.gradient.upstream = {1};
  c.gradient.pairs = {{4, 0}};
  return c;
}

}  // namespace

std::vector<OpCase> embedding_cases(CaseUse use) {
  using namespace bench_size;
  if (use == CaseUse::bench) {
    const Sizes bytes{.tokens = kTokens, .rows = kBytes, .cols = kWidth, .vocabulary = kBytes};
    const Sizes large{.tokens = kTokens, .rows = kVocabulary, .cols = kWidth, .vocabulary = kVocabulary};
    return {forward(bytes, Accum::overwrite), forward(large, Accum::overwrite),
            backward(bytes, Accum::overwrite, false), backward(large, Accum::overwrite, false)};
  }
  const Sizes one{.tokens = 1, .rows = 1, .cols = 1, .vocabulary = 1};
  const Sizes middle{.tokens = 37, .rows = 11, .cols = 33, .first = 5, .vocabulary = 20};  // most ids repeat
  const Sizes sparse{.tokens = 37, .rows = 211, .cols = 832, .vocabulary = 211};           // most rows have no token
  const Sizes same{.tokens = 301, .rows = 3, .cols = 40, .vocabulary = 1};                 // one id for all
  const Sizes few{.tokens = 130, .rows = 3, .cols = 272, .vocabulary = 3};  // ids that go on over several pieces
  const Sizes long_rows{.tokens = 35, .rows = 7, .cols = 2056, .vocabulary = 7};
  const Sizes elsewhere{.tokens = 9, .rows = 4, .cols = 17, .first = 100, .vocabulary = 100};
  return {forward(one, Accum::overwrite),
          forward(middle, Accum::overwrite),
          forward(middle, Accum::add),
          forward(sparse, Accum::overwrite),
          forward(elsewhere, Accum::overwrite),
          forward(long_rows, Accum::add),
          backward(one, Accum::overwrite, true),
          backward(middle, Accum::overwrite, true),
          backward(middle, Accum::add, true),
          backward(sparse, Accum::overwrite, false),
          backward(sparse, Accum::add, false),
          backward(same, Accum::overwrite, true),
          backward(few, Accum::overwrite, false),
          backward(few, Accum::add, false),
          backward(elsewhere, Accum::overwrite, false)};
}

}  // namespace chiron
