#include "ops/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/simd.h"
#include "ops/cross_entropy/cross_entropy_gpu.h"

namespace chiron {
namespace {

constexpr int64_t kBlock = 512;      // columns between two updates of the running maximum; they stay in the L1 cache
constexpr int64_t kSumBlock = 4096;  // losses in one partial sum

int64_t row_grain(int64_t cols) { return 16384 / (cols + 1) + 1; }

void check_rows(const char* name, const Rows& logits, View labels, const CrossEntropyShape& shape) {
  CHECK(labels.numel() == logits.rows && labels.dtype == DType::i32 && shape.first >= 0 &&
            shape.first + logits.cols <= shape.vocab,
        "{} of {} ({}, {}), columns from {} of {}", name, name_of(logits.dtype), logits.rows, logits.cols, shape.first,
        shape.vocab);
  CHECK(shape.label_smoothing >= 0 && shape.label_smoothing < 1);
}

void check_stat(View stat, const Rows& logits) {
  CHECK(stat.shape == (Shape{logits.rows, 4}) && stat.dtype == acc_dtype(logits.dtype));
}

void check_losses(const char* name, View losses, const Rows& logits, int64_t padded_cols, View labels, View scale,
                  const CrossEntropyShape& shape) {
  check_rows(name, logits, labels, shape);
  CHECK(losses.numel() == logits.rows && losses.dtype == acc_dtype(logits.dtype) && padded_cols >= logits.cols &&
        padded_cols <= logits.ld);
  CHECK(!scale.present() || (scale.numel() == 1 && (scale.dtype == DType::f32 || scale.dtype == DType::f64)));
}

}  // namespace

void cross_entropy(Stream& s, Tensor losses, Rows logits, int64_t padded_cols, View labels, View scale,
                   const CrossEntropyShape& shape, Stack& temp) {
  if (!s.on_gpu()) {
    Scope scope(temp);
    Tensor stat = temp.push(losses.dtype, {logits.rows, 4});
    cross_entropy_partial(s, stat, logits, labels, shape);
    return cross_entropy_finish(s, losses, logits, padded_cols, labels, stat, scale, shape);
  }
  check_losses("cross_entropy", losses, logits, padded_cols, labels, scale, shape);
  CHECK(shape.first == 0 && shape.vocab == logits.cols);
  OpScope op(s, "cross_entropy", {losses, logits}, {labels, scale},
             (scale.present() ? 20.0 : 10.0) * static_cast<double>(logits.rows) * static_cast<double>(logits.cols));
  if (!op) return;
  if constexpr (gpu::kBuilt) gpu::cross_entropy(s, losses, logits, padded_cols, labels, scale, shape);
}

void cross_entropy_partial(Stream& s, Tensor stat, Rows logits, View labels, const CrossEntropyShape& shape) {
  check_rows("cross_entropy_partial", logits, labels, shape);
  check_stat(stat, logits);
  OpScope op(s, "cross_entropy_partial", {stat}, {logits, labels},
             10.0 * static_cast<double>(logits.rows) * static_cast<double>(logits.cols));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::cross_entropy_partial(s, stat, logits, labels, shape);
  by_float(logits.dtype, [&]<class T>() {
    using A = Acc<T>;
    using V = simd::Vec<A>;
    const T* px = logits.data<T>();
    const auto* pl = labels.data<int32_t>();
    A* ps = stat.data<A>();
    const int64_t cols = logits.cols, ld = logits.ld, first = shape.first;
    const bool smooth = shape.label_smoothing > 0;
    s.parallel(logits.rows, row_grain(cols), [=](int64_t begin, int64_t end) {
      constexpr A kLowest = std::numeric_limits<A>::lowest(), kNothing = -std::numeric_limits<A>::infinity();
      for (int64_t r = begin; r < end; ++r) {
        const T* row = px + r * ld;
        A* out = ps + 4 * r;
        const int64_t label = pl[r] - first;
        A max = kLowest, sum = 0;  // of the columns so far: sum of exp(x - max)
        V total{};
        const int64_t counted = pl[r] == kIgnore ? 0 : cols;
        for (int64_t c = 0; c < counted; c += kBlock) {
          const T* in = row + c;
          const int64_t count = std::min(kBlock, counted - c);
          V highest = simd::splat(kLowest);
          simd::for_each_vector(count, [&](int64_t i, auto n) {
            V x = simd::load(in + i, n, kNothing);
            highest = simd::max<A>(x, highest);  // a NaN is passed over here and found by the sum
          });
          if (const A m = simd::max_of<A>(highest); m > max) {
            sum *= std::exp(max - m);
            max = m;
          }
          V block{};
          simd::for_each_vector(count, [&](int64_t i, auto n) {
            block += simd::exp<A>(simd::load(in + i, n, kNothing) - max);
            if (smooth) total += simd::load(in + i, n);
          });
          sum += simd::sum<A>(block);
        }
        out[0] = max;
        out[1] = sum;
        out[2] = counted > 0 && label >= 0 && label < cols ? static_cast<A>(row[label]) : A(0);
        out[3] = simd::sum<A>(total);
      }
    });
  });
}

void cross_entropy_combine(Stream& s, Tensor stat, View parts) {
  const int64_t rows = stat.shape[0], num_parts = parts.shape[0];
  CHECK(parts.shape == (Shape{num_parts, rows, 4}) && stat.shape == (Shape{rows, 4}) && parts.dtype == stat.dtype,
        "cross_entropy_combine of {} to {}", parts.shape.str(), stat.shape.str());
  OpScope op(s, "cross_entropy_combine", {stat}, {parts}, 5.0 * static_cast<double>(parts.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::cross_entropy_combine(s, stat, parts);
  auto combine = [&]<class A>() {
    const A* from = parts.data<A>();
    A* to = stat.data<A>();
    s.parallel(rows, 1024, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        A max = from[4 * r], sum = 0, label = 0, total = 0;
        for (int64_t p = 1; p < num_parts; ++p) max = std::max(max, from[4 * (p * rows + r)]);
        for (int64_t p = 0; p < num_parts; ++p) {
          const A* part = from + 4 * (p * rows + r);
          sum += part[1] * std::exp(part[0] - max);
          label += part[2];
          total += part[3];
        }
        A* out = to + 4 * r;
        out[0] = max;
        out[1] = sum;
        out[2] = label;
        out[3] = total;
      }
    });
  };
  if (stat.dtype == DType::f64)
    combine.template operator()<double>();
  else
    combine.template operator()<float>();
}

void cross_entropy_finish(Stream& s, Tensor losses, Rows logits, int64_t padded_cols, View labels, View stat,
                          View scale, const CrossEntropyShape& shape) {
  check_losses("cross_entropy_finish", losses, logits, padded_cols, labels, scale, shape);
  check_stat(stat, logits);
  const bool write = scale.present();
  const double elements = static_cast<double>(logits.rows) * static_cast<double>(logits.cols);
  OpScope op(s, "cross_entropy_finish", {losses, logits}, {labels, stat, scale}, write ? 10.0 * elements : 0);
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::cross_entropy_finish(s, losses, logits, padded_cols, labels, stat, scale, shape);
  const double upstream = !write ? 0 : scale.dtype == DType::f64 ? *scale.data<double>() : *scale.data<float>();
  by_float(logits.dtype, [&]<class T>() {
    using A = Acc<T>;
    T* px = logits.data<T>();
    const auto* pl = labels.data<int32_t>();
    const A* ps = stat.data<A>();
    A* ploss = losses.data<A>();
    const int64_t cols = logits.cols, ld = logits.ld, first = shape.first;
    const A scale_of = static_cast<A>(upstream), smoothing = static_cast<A>(shape.label_smoothing);
    const A vocab = static_cast<A>(shape.vocab);
    s.parallel(logits.rows, write ? row_grain(cols) : 1024, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* row = px + r * ld;
        const bool ignored = pl[r] == kIgnore;
        const A *in = ps + 4 * r, max = in[0], sum = in[1];
        // The same as lse - (1 - e) x[label] - e mean(x), without the difference of large numbers.
        ploss[r] = ignored ? A(0)
                           : std::log(sum) + (A(1) - smoothing) * (max - in[2]) +
                                 (smoothing > 0 ? smoothing * (max - in[3] / vocab) : A(0));
        if (!write) continue;
        std::memset(static_cast<void*>(row + cols), 0, static_cast<size_t>(padded_cols - cols) * sizeof(T));
        if (ignored) {
          std::memset(static_cast<void*>(row), 0, static_cast<size_t>(cols) * sizeof(T));
          continue;
        }
        const A factor = scale_of / sum, uniform = scale_of * smoothing / vocab;
        const int64_t label = pl[r] - first;
        const bool mine = label >= 0 && label < cols;
        const A at_label = mine ? std::exp(in[2] - max) * factor - uniform - scale_of * (A(1) - smoothing) : A(0);
        simd::for_each_vector(cols, [&](int64_t i, auto n) {
          simd::store(row + i, simd::exp<A>(simd::load(row + i, n) - max) * factor - uniform, n);
        });
        if (mine) row[label] = static_cast<T>(at_label);
      }
    });
  });
}

void sum_losses(Stream& s, Tensor sum, bool overwrite, View losses) {
  CHECK(sum.numel() == 1 && (sum.dtype == DType::f32 || sum.dtype == DType::f64) &&
        (losses.dtype == DType::f32 || losses.dtype == DType::f64));
  OpScope op(s, "sum_losses", {sum}, {losses}, static_cast<double>(losses.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::sum_losses(s, sum, overwrite, losses);
  double total = 0;
  auto add_up = [&]<class A>() {
    const A* p = losses.data<A>();
    for (int64_t begin = 0; begin < losses.numel(); begin += kSumBlock) {
      simd::Vec<A> block{};
      simd::for_each_vector(std::min(kSumBlock, losses.numel() - begin),
                            [&](int64_t i, auto n) { block += simd::load(p + begin + i, n); });
      total += static_cast<double>(simd::sum<A>(block));
    }
  };
  if (losses.dtype == DType::f64)
    add_up.template operator()<double>();
  else
    add_up.template operator()<float>();
  if (sum.dtype == DType::f64)
    *sum.data<double>() = total + (overwrite ? 0 : *sum.data<double>());
  else
    *sum.data<float>() = static_cast<float>(total + (overwrite ? 0 : static_cast<double>(*sum.data<float>())));
}

void count_labels(Stream& s, Tensor count, bool overwrite, View labels) {
  CHECK(count.numel() == 1 && count.dtype == DType::i32 && labels.dtype == DType::i32);
  OpScope op(s, "count_labels", {count}, {labels}, static_cast<double>(labels.numel()));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::count_labels(s, count, overwrite, labels);
  const auto* p = labels.data<int32_t>();
  int32_t counted = 0;
  for (int64_t i = 0; i < labels.numel(); ++i) counted += p[i] != kIgnore;
  *count.data<int32_t>() = counted + (overwrite ? 0 : *count.data<int32_t>());
}

}  // namespace chiron
