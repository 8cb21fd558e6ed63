// Operands of more than 2^31 elements, op by op. Rows repeat with a period, so that a run over one period tells what a
// row of a long run must be; sums over rows grow with the number of periods. A row's offset wraps, in 32 bits, to
// another place of the period: an index that is too narrow reads other rows and writes elsewhere.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <set>

#include "core/gpu_testing.h"
#include "ops/adamw/adamw.h"
#include "ops/all_cases.h"
#include "ops/attention/attention.h"
#include "ops/cast/cast.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/gelu/gelu.h"
#include "ops/gemm/gemm.h"
#include "ops/layernorm/layernorm.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "ops/residual/residual.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/softmax/softmax.h"
#include "ops/swiglu/swiglu.h"

namespace chiron {
namespace {

constexpr DType kHalf = DType::bf16, kFloat = DType::f32;
constexpr int64_t kPeriod = 31, kCols = 4104, kFew = 64;
constexpr float kEps = 1e-5f;

/// An array that the op wrote: (rows, cols) where a row is told by its place in the period, else compared as a whole.
struct Result {
  Tensor t;
  bool by_row, only_end = false;
  double factor = 1;  ///< a whole is this many times that of a run over one period
};

/// The operands of one call, over `periods` periods of `period` rows. The same calls in the same order give the same
/// values in each run.
class Run {
 public:
  Run(Stream& stream, Stack& memory, Stack& scratch, int64_t period, int64_t periods)
      : s(stream), temp(scratch), memory_(memory), period_(period), periods_(periods) {}

  Stream& s;
  Stack& temp;
  std::vector<Result> results;

  int64_t rows() const { return period_ * periods_; }

  /// Values that repeat, normally distributed. `times`: so many times the rows.
  Tensor input(DType dtype, int64_t cols, double scale = 1, double shift = 0, int64_t times = 1) {
    return repeat(memory_.push(dtype, {rows() * times, cols}), random_normal(period_ * cols, ++seed_, scale, shift));
  }
  /// Whole numbers below `below` that repeat.
  Tensor ids(int64_t below) { return repeat(memory_.push(DType::i32, {rows()}), random_ids(period_, below, ++seed_)); }
  Tensor repeated(const std::vector<double>& period) { return repeat(memory_.push(DType::i32, {rows()}), period); }
  /// The same values in a run of any length.
  Tensor fixed(DType dtype, Shape shape, double scale = 1, double shift = 0) {
    return values(dtype, shape, random_normal(shape.numel(), ++seed_, scale, shift));
  }
  Tensor values(DType dtype, Shape shape, const std::vector<double>& from) {
    Tensor t = memory_.push(dtype, shape);
    write(t, from);
    return t;
  }
  /// An array that the op fills, row by row.
  Tensor output(DType dtype, int64_t cols) {
    Tensor t = whole(dtype, {rows(), cols}, 1);
    results.back().by_row = true;
    return t;
  }
  /// The same, but it is only the last period that is told by a run over one.
  Tensor output_end(DType dtype, int64_t cols) {
    Tensor t = output(dtype, cols);
    results.back().only_end = true;
    return t;
  }
  /// An array that the op adds to or changes, row by row.
  Tensor changed(DType dtype, int64_t cols, double scale = 1, double shift = 0) {
    Tensor t = input(dtype, cols, scale, shift);
    results.push_back({t, true});
    return t;
  }
  /// A sum over all rows.
  Tensor sum(DType dtype, Shape shape) { return whole(dtype, shape, static_cast<double>(periods_)); }
  /// An array that does not depend on the number of rows.
  Tensor same(DType dtype, Shape shape) { return whole(dtype, shape, 1); }

  StepScalars* scalars() {
    const StepScalars all{.seed = 3, .step = 5, .learning_rate = 0.01f, .clip_factor = 0.5f, .finite = 1, .applied = 3};
    Tensor t = memory_.push(DType::u8, {sizeof all});
    s.upload(t, &all);
    return reinterpret_cast<StepScalars*>(t.at);
  }
  /// The last rows, backwards: the same rows of the period in every run.
  std::vector<double> last_ids(int64_t n) const {
    std::vector<double> out;
    for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>(rows() - 1 - i));
    return out;
  }

 private:
  Tensor whole(DType dtype, Shape shape, double factor) {
    Tensor t = memory_.push(dtype, shape);
    if (!s.dry()) s.fill_bytes(t, 0xff);
    results.push_back({.t = t, .by_row = false, .factor = factor});
    return t;
  }
  Tensor repeat(Tensor t, const std::vector<double>& period) {
    write(t.slice(0, period_), period);
    for (int64_t done = period_, n; done < t.shape[0]; done += n) {
      n = std::min(done, t.shape[0] - done);
      s.copy(t.slice(done, done + n), t.slice(0, n));
    }
    return t;
  }
  void write(Tensor t, const std::vector<double>& from) {
    if (s.dry()) return;
    auto put = [&]<class T>() {
      std::vector<T> host;
      for (double x : from) host.push_back(static_cast<T>(static_cast<float>(x)));
      s.upload(t, host.data());
    };
    if (t.dtype != DType::i32) return by_gpu_float(t.dtype, put);
    const std::vector<int32_t> host(from.begin(), from.end());
    s.upload(t, host.data());
  }

  Stack& memory_;
  int64_t period_, periods_;
  uint32_t seed_ = 0;
};

struct Huge {
  std::string op;  ///< or "op: what else is special"
  int64_t period, cols;
  std::function<void(Run&)> call;
};
void PrintTo(const Huge& h, std::ostream* out) { *out << h.op; }

AttentionShape heads_of(const Run& r) {
  return {.sequences = r.rows() / kFew,
          .q_length = kFew,
          .k_length = kFew,
          .heads = 8,
          .kv_heads = 8,
          .head_dim = kFew,
          .scale = 0.125f};
}
Dropout drop(Run& r) { return {.p = 0.2f, .key = {.step = r.scalars()}, .index = r.ids(1 << 20)}; }
Ids sorted(Run& r, Tensor ids, std::vector<double> of) {
  std::vector<double> order(of.size());
  std::iota(order.begin(), order.end(), 0.0);
  std::ranges::stable_sort(order, {}, [&](double i) { return of[static_cast<size_t>(i)]; });
  return {ids, r.values(DType::i32, {static_cast<int64_t>(order.size())}, order)};
}

const std::vector<Huge>& all_huge() {
  // Attention takes whole sequences, of kFew tokens; losses and labels have one column.
  constexpr int64_t kSequences = kPeriod * kFew, kWidth = 8 * kFew, kLong = kPeriod * kCols, kHeads = 27;
  static const std::vector<Huge> all = {
      {"adamw", kPeriod, kCols,
       [](Run& r) {
         Shard shard{.master = r.changed(kFloat, kCols), .compute = r.output(kHalf, kCols)};
         shard.grad = r.input(kFloat, kCols);
         shard.m = r.changed(kFloat, kCols);
         shard.v = r.changed(kFloat, kCols, 1, 10);
         shard.decay = true;
         adamw(r.s, r.scalars(), make_shards(r.s, r.temp, {&shard, 1}), {});
       }},
      {"add", kPeriod, kCols,
       [](Run& r) { add(r.s, r.output(kHalf, kCols), r.input(kHalf, kCols), r.input(kHalf, kCols)); }},
      {"attention", kSequences, kWidth,
       [](Run& r) {
         Tensor q = r.input(kHalf, kWidth), k = r.input(kHalf, kWidth), v = r.input(kHalf, kWidth);
         attention(r.s, r.output(kHalf, kWidth), r.output(kFloat, 8), q, k, v, heads_of(r), {}, r.temp);
       }},
      {"attention_backward", kSequences, kWidth,
       [](Run& r) {
         Tensor q = r.input(kHalf, kWidth), k = r.input(kHalf, kWidth), v = r.input(kHalf, kWidth);
         Tensor o = r.input(kHalf, kWidth), d_o = r.input(kHalf, kWidth), lse = r.input(kFloat, 8, 0.1, 3);
         Tensor dq = r.output(kHalf, kWidth), dk = r.output(kHalf, kWidth), dv = r.output(kHalf, kWidth);
         attention_backward(r.s, dq, dk, dv, d_o, q, k, v, o, lse, heads_of(r), {}, r.temp);
       }},
      {"attention_merge", kPeriod, kCols,
       [](Run& r) {
         Tensor o2 = r.input(kHalf, kCols), lse2 = r.input(kFloat, kHeads);
         attention_merge(r.s, r.changed(kHalf, kCols), r.changed(kFloat, kHeads), o2, lse2, kHeads);
       }},
      {"cast", kPeriod, kCols, [](Run& r) { cast(r.s, r.output(kHalf, kCols), r.input(kFloat, kCols)); }},
      {"count_labels", kLong, 1,
       [](Run& r) {
         std::vector<double> labels(kLong, kIgnore);
         for (size_t i = 0; i < labels.size(); i += 7) labels[i] = 1;
         count_labels(r.s, r.sum(DType::i32, {1}), true, r.repeated(labels));
       }},
      {"cross_entropy", kPeriod, kCols,
       [](Run& r) {
         const CrossEntropyShape shape{.vocab = kCols, .label_smoothing = 0.1f};
         Tensor stat = r.output(kFloat, 4), logits = r.changed(kHalf, kCols), labels = r.ids(kCols);
         cross_entropy_partial(r.s, stat, logits, labels, shape);
         cross_entropy_finish(r.s, r.output(kFloat, 1).reshape({r.rows()}), logits, kCols, labels, stat,
                              r.values(kFloat, {1}, {0.5}), shape);
       }},
      {"cross_entropy_combine", kLong, 4,
       [](Run& r) {
         cross_entropy_combine(r.s, r.output(kFloat, 4), r.input(kFloat, 4, 1, 0, 2).reshape({2, r.rows(), 4}));
       }},
      {"dropout", kPeriod, kCols,
       [](Run& r) { dropout(r.s, r.output(kHalf, kCols), r.input(kHalf, kCols), r.input(kHalf, kCols), drop(r)); }},
      {"dropout_backward", kPeriod, kCols,
       [](Run& r) { dropout_backward(r.s, r.output(kHalf, kCols), r.input(kHalf, kCols), drop(r)); }},
      {"embedding", kPeriod, kCols,
       [](Run& r) {
         Tensor ids = r.ids(kFew);
         embedding(r.s, r.output(kHalf, kCols), Accum::overwrite, ids, r.fixed(kHalf, {kFew, kCols}), 0);
       }},
      {"embedding: a large table", kPeriod, kCols,
       [](Run& r) {
         Tensor ids = r.values(DType::i32, {kPeriod}, r.last_ids(kPeriod));
         embedding(r.s, r.same(kHalf, {kPeriod, kCols}), Accum::overwrite, ids, r.input(kHalf, kCols), 0);
       }},
      {"embedding_backward", kPeriod, kCols,
       [](Run& r) {
         std::vector<double> ids(static_cast<size_t>(r.rows()));
         for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i % kPeriod / 2);
         const Ids both = sorted(r, r.values(DType::i32, {r.rows()}, ids), ids);
         embedding_backward(r.s, r.sum(kFloat, {kFew, kCols}), Accum::overwrite, r.input(kHalf, kCols), both, 0,
                            r.temp);
       }},
      {"embedding_backward: a large table", kPeriod, kCols,
       [](Run& r) {
         const auto ids = r.last_ids(kPeriod);
         const Ids both = sorted(r, r.values(DType::i32, {kPeriod}, ids), ids);
         Tensor dy = r.fixed(kHalf, {kPeriod, kCols});
         embedding_backward(r.s, r.output_end(kFloat, kCols), Accum::overwrite, dy, both, 0, r.temp);
       }},
      {"gelu", kPeriod, kCols, [](Run& r) { gelu(r.s, r.output(kHalf, kCols), r.input(kHalf, kCols), Gelu::tanh); }},
      {"gelu_backward", kPeriod, kCols,
       [](Run& r) {
         gelu_backward(r.s, r.output(kHalf, kCols), r.input(kHalf, kCols), r.input(kHalf, kCols), Gelu::erf);
       }},
      {"gemm", kPeriod, kCols,
       [](Run& r) {
         Tensor a = r.input(kHalf, kFew), b = r.fixed(kHalf, {kFew, kCols});
         gemm(r.s, r.output(kHalf, kCols), Accum::overwrite, a, Op::none, b, Op::none, r.temp);
       }},
      {"gemm: a large B", kPeriod, kCols,
       [](Run& r) {
         Tensor a = r.fixed(kHalf, {1, kCols}), b = r.input(kHalf, kCols);
         gemm(r.s, r.output(kFloat, 1).reshape({1, r.rows()}), Accum::overwrite, a, Op::none, b, Op::transpose, r.temp);
       }},
      {"layernorm", kPeriod, kCols,
       [](Run& r) {
         Tensor w = r.fixed(kHalf, {kCols}), b = r.fixed(kHalf, {kCols});
         layernorm(r.s, r.output(kHalf, kCols), r.output(kFloat, 2), r.input(kHalf, kCols), w, b, kEps);
       }},
      {"layernorm_backward", kPeriod, kCols,
       [](Run& r) {
         Tensor dw = r.sum(kFloat, {kCols}), db = r.sum(kFloat, {kCols}), dy = r.input(kHalf, kCols);
         Tensor x = r.input(kHalf, kCols), stat = r.input(kFloat, 2), w = r.fixed(kHalf, {kCols});
         layernorm_backward(r.s, r.changed(kHalf, kCols), dw, Accum::overwrite, db, Accum::overwrite, dy, x, stat, w,
                            r.temp);
       }},
      {"linear", kPeriod, kCols,
       [](Run& r) {
         Tensor x = r.input(kHalf, kFew), w = r.fixed(kHalf, {kCols, kFew}), bias = r.fixed(kHalf, {kCols});
         linear(r.s, r.output(kHalf, kCols), x, w, bias, {}, r.temp);
       }},
      {"linear: one row, a large weight", kPeriod, kCols,
       [](Run& r) {
         Tensor x = r.fixed(kHalf, {1, kCols}), w = r.input(kHalf, kCols);
         linear(r.s, r.output(kHalf, 1).reshape({1, r.rows()}), x, w, {}, {}, r.temp);
       }},
      {"linear_backward_bias", kPeriod, kCols,
       [](Run& r) {
         linear_backward_bias(r.s, r.sum(kFloat, {kCols}), Accum::overwrite, r.input(kHalf, kCols), r.temp);
       }},
      {"linear_backward_input", kPeriod, kCols,
       [](Run& r) {
         Tensor dy = r.input(kHalf, kFew), w = r.fixed(kHalf, {kFew, kCols});
         linear_backward_input(r.s, r.output(kHalf, kCols), Accum::overwrite, dy, w, r.temp);
       }},
      {"linear_backward_weight", kPeriod, kCols,
       [](Run& r) {
         Tensor dy = r.input(kHalf, kFew), x = r.input(kHalf, kCols);
         linear_backward_weight(r.s, r.sum(kFloat, {kFew, kCols}), Accum::overwrite, dy, x, r.temp);
       }},
      {"rmsnorm", kPeriod, kCols,
       [](Run& r) {
         Tensor w = r.fixed(kHalf, {kCols});
         rmsnorm(r.s, r.output(kHalf, kCols), r.output(kFloat, 1).reshape({r.rows()}), r.input(kHalf, kCols), w, kEps);
       }},
      {"rmsnorm_backward", kPeriod, kCols,
       [](Run& r) {
         Tensor dy = r.input(kHalf, kCols), x = r.input(kHalf, kCols), w = r.fixed(kHalf, {kCols});
         rmsnorm_backward(r.s, r.changed(kHalf, kCols), r.sum(kFloat, {kCols}), Accum::overwrite, dy, x,
                          r.input(kFloat, 1).reshape({r.rows()}), w, r.temp);
       }},
      {"rope", kPeriod, kCols,
       [](Run& r) {
         Tensor inv_freq = r.fixed(kFloat, {kCols / kHeads / 2}, 0.1);
         rope(r.s, r.changed(kHalf, kCols), r.ids(1000), inv_freq, kHeads, false);
       }},
      {"rope_backward", kPeriod, kCols,
       [](Run& r) {
         Tensor inv_freq = r.fixed(kFloat, {kCols / kHeads / 2}, 0.1);
         rope(r.s, r.changed(kHalf, kCols), r.ids(1000), inv_freq, kHeads, true);
       }},
      {"softmax", kPeriod, kCols, [](Run& r) { softmax(r.s, r.output(kHalf, kCols), r.input(kHalf, kCols), 0.5f); }},
      {"softmax_backward", kPeriod, kCols,
       [](Run& r) {
         softmax_backward(r.s, r.output(kHalf, kCols), r.input(kHalf, kCols), r.input(kHalf, kCols), 0.5f);
       }},
      {"squared_norm", kPeriod, kCols,
       [](Run& r) {
         Tensor grad = r.input(kFloat, kCols);
         Shard shard{.master = grad, .grad = grad};
         StepScalars* scalars = r.scalars();
         squared_norm(r.s, scalars, make_shards(r.s, r.temp, {&shard, 1}), r.temp);
         r.s.copy(r.sum(kFloat, {1}),
                  View{reinterpret_cast<uintptr_t>(scalars) + offsetof(StepScalars, sums), kFloat, {1}});
       }},
      {"sum_losses", kLong, 1,
       [](Run& r) { sum_losses(r.s, r.sum(kFloat, {1}), true, r.input(kFloat, 1, 1, 5).reshape({r.rows()})); }},
      {"swiglu", kPeriod, kCols, [](Run& r) { swiglu(r.s, r.output(kHalf, kCols / 2), r.input(kHalf, kCols)); }},
      {"swiglu_backward", kPeriod, kCols,
       [](Run& r) { swiglu_backward(r.s, r.output(kHalf, kCols), r.input(kHalf, kCols / 2), r.input(kHalf, kCols)); }},
  };
  return all;
}

/// A run with its memory.
struct Ran {
  Stack memory, temp;
  Run run;
  Ran(const Huge& h, Stream& s, int64_t periods, int64_t bytes, int64_t scratch)
      : memory(s.device(), bytes), temp(s.device(), scratch), run(s, memory, temp, h.period, periods) {
    h.call(run);
  }
  /// Bytes of operands and of scratch memory, found by a dry run.
  static std::pair<int64_t, int64_t> bytes(const Huge& h, Device device, int64_t periods) {
    Stream dry = Stream::dry(device);
    Stack memory = Stack::dry(0), temp = Stack::dry(1);
    Run run(dry, memory, temp, h.period, periods);
    h.call(run);
    return {memory.peak(), temp.peak()};
  }
};

std::vector<double> read(Stream& s, Tensor t) {
  std::vector<double> out;
  auto take = [&]<class T>() {
    std::vector<T> host(static_cast<size_t>(t.numel()));
    s.download(host.data(), t);
    for (T x : host) out.push_back(static_cast<double>(static_cast<float>(x)));
  };
  if (t.dtype != DType::i32) {
    by_gpu_float(t.dtype, take);
    return out;
  }
  std::vector<int32_t> host(static_cast<size_t>(t.numel()));
  s.download(host.data(), t);
  out.assign(host.begin(), host.end());
  return out;
}

/// `scale`: the norm that is usual here. What cancels to less is as exact as what it was added up from.
void expect_near(const std::vector<double>& got, const double* want, double factor, double allowed, double scale,
                 const std::string& what) {
  double off = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    off += std::pow(got[i] - want[i] * factor, 2);
    norm += std::pow(want[i] * factor, 2);
  }
  EXPECT_LE(std::sqrt(off), allowed * std::max(std::sqrt(norm), scale)) << what << ": norm " << std::sqrt(norm);
}

/// Runs the op over one period and over `periods`, and compares a few places.
void check(const Huge& h, Stream& s, int64_t periods) {
  std::vector<std::vector<double>> want;
  {
    const auto [bytes, scratch] = Ran::bytes(h, s.device(), 1);
    Ran one(h, s, 1, bytes, scratch);
    for (const Result& r : one.run.results) want.push_back(read(s, r.t));
  }
  const auto [bytes, scratch] = Ran::bytes(h, s.device(), periods);
  Ran all(h, s, periods, bytes, scratch);
  ASSERT_EQ(all.run.results.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const Result& r = all.run.results[i];
    const std::string name = fmt::format("result {} of {}", i, h.op);
    if (!r.by_row) {
      // Millions of summands in float32, in another order than in one period.
      expect_near(read(s, r.t), want[i].data(), r.factor, 3e-4, 0, name);
      continue;
    }
    const double allowed = r.t.dtype == kFloat ? 1e-5 : 1e-2;
    const int64_t rows = all.run.rows(), cols = r.t.numel() / rows;
    double squares = 0;
    for (double x : want[i]) squares += x * x;
    const double usual = std::sqrt(squares / static_cast<double>(h.period));
    const int64_t n = std::min<int64_t>(8, h.period);
    // The ends, and where an offset in elements or bytes passes 2^31 or 2^32.
    std::vector<int64_t> places = {rows - n};
    if (!r.only_end) {
      places.push_back(0);
      for (int64_t offset : {int64_t{1} << 29, int64_t{1} << 30, int64_t{1} << 31})
        if (offset / cols < rows - n) places.push_back(std::max<int64_t>(0, offset / cols - n / 2));
    }
    for (int64_t place : places) {
      for (int64_t row = place; row < place + n; ++row)
        expect_near(read(s, r.t.slice(row, row + 1)), want[i].data() + row % h.period * cols, 1, allowed, usual,
                    fmt::format("{}, row {}", name, row));
    }
  }
}

class GpuHuge : public testing::TestWithParam<Huge> {};

TEST_P(GpuHuge, RowsBeyond32BitsAreAsAnyOther) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  if constexpr (gpu::kBuilt) {
    const Huge& h = GetParam();
    const int64_t periods = (int64_t{1} << 31) / (h.period * h.cols) + 1;
    const auto [bytes, scratch] = Ran::bytes(h, kGpu, periods);
    const int64_t need = bytes + scratch + (int64_t{1} << 30), free = gpu::free_memory(kGpu.index);
    if (need > free) GTEST_SKIP() << "needs " << need << " bytes of device memory, " << free << " are free";
    ThreadPool pool(1);
    Stream s(kGpu, pool);
    check(h, s, periods);
  }
}

std::string test_name(const testing::TestParamInfo<Huge>& info) {
  std::string name = info.param.op;
  std::erase(name, ',');
  std::erase(name, ':');
  std::ranges::replace(name, ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, GpuHuge, testing::ValuesIn(all_huge()), test_name);

TEST(HugeCases, HoldOnTheCpuForThreePeriods) {
  ThreadPool pool(2);
  Stream s({}, pool);
  for (const Huge& h : all_huge()) check(h, s, 3);
}

TEST(HugeCases, EveryOpHasOne) {
  std::set<std::string> ops, covered;
  for_each_op_case(CaseUse::check, [&](const OpCase& c) { ops.insert(c.op); });
  for (const Huge& h : all_huge()) covered.insert(h.op.substr(0, h.op.find(':')));
  EXPECT_EQ(ops, covered);
}

}  // namespace
}  // namespace chiron
