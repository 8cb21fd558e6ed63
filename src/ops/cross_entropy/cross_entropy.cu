#include <algorithm>

#include "core/launch.h"
#include "gpu/reduce.h"
#include "gpu/vec.h"
#include "ops/cross_entropy/cross_entropy_gpu.h"

namespace chiron::gpu {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest(), kInfinity = std::numeric_limits<float>::infinity();

/// What the kernels are told besides arrays.
struct Problem {
  int64_t rows, cols, ld, padded_cols, first;
  float vocab, smoothing;
};

/// Four statistics of a row, as in cross_entropy.h.
struct Stat {
  float max, sum, label, total;
};

/// exp(x) for x <= 0, NaN or a difference of infinities.
__device__ float weight(float x) {
  constexpr float kLog2E = 1.44269504f;
  return fast_exp2(x * kLog2E);
}

/// Of the columns that a team has, in one reading: each thread keeps the maximum of what it has seen and the sum
/// relative to that. A NaN is passed over by the maximum and found by the sum.
template <class T, class Team>
__device__ Stat row_statistics(const Team& team, const T* row, int32_t label, const Problem& p) {
  if (label == kIgnore) return {kLowest, 0, 0, 0};
  float max = kLowest, sum = 0, total = 0;
  const int64_t step = static_cast<int64_t>(team.size()) * kVec<T>;
#pragma unroll 2
  for (int64_t i = static_cast<int64_t>(team.rank()) * kVec<T>; i < p.cols; i += step) {
    const Floats<T> x = load(row + i, p.cols - i, -kInfinity);
    float highest = max;
    for (int e = 0; e < kVec<T>; ++e) highest = x[e] > highest ? x[e] : highest;
    if (highest > max) {
      sum *= weight(max - highest);
      max = highest;
    }
    for (int e = 0; e < kVec<T>; ++e) sum += weight(x[e] - max);
    if (p.smoothing > 0)
      for (int e = 0; e < kVec<T>; ++e) total += i + e < p.cols ? x[e] : 0;
  }
  const float of_row = team.max(max);
  sum = team.sum(sum * weight(max - of_row));
  if (p.smoothing > 0) total = team.sum(total);
  const int64_t at = label - p.first;
  return {of_row, sum, at >= 0 && at < p.cols ? to_float(row[at]) : 0, total};
}

/// The same as lse - (1 - e) x[label] - e mean(x), without the difference of large numbers.
__device__ float row_loss(const Stat& s, int32_t label, const Problem& p) {
  if (label == kIgnore) return 0;
  const float smooth = p.smoothing > 0 ? p.smoothing * (s.max - s.total / p.vocab) : 0;
  return log(s.sum) + (1 - p.smoothing) * (s.max - s.label) + smooth;
}

/// The logits of a row become `scale` times their gradient, the padding 0.
template <class T, class Team>
__device__ void write_gradient(const Team& team, T* row, int32_t label, const Stat& s, float scale, const Problem& p) {
  const int64_t rank = team.rank(), size = team.size();
  if (label == kIgnore) {
    for (int64_t i = rank * kVec<T>; i < p.padded_cols; i += size * kVec<T>)
      store(row + i, Floats<T>{}, p.padded_cols - i);
    return;
  }
  const float factor = scale / s.sum, uniform = scale * p.smoothing / p.vocab, hit = scale * (1 - p.smoothing);
  const int64_t at = label - p.first;
#pragma unroll 2
  for (int64_t i = rank * kVec<T>; i < p.cols; i += size * kVec<T>) {
    Floats<T> x = load(row + i, p.cols - i);
    for (int e = 0; e < kVec<T>; ++e) x[e] = weight(x[e] - s.max) * factor - uniform;
    if (at >= i && at < i + kVec<T>)
      for (int e = 0; e < kVec<T>; ++e) x[e] -= i + e == at ? hit : 0;
    store(row + i, x, p.cols - i);
  }
  for (int64_t i = p.cols + rank; i < p.padded_cols; i += size) row[i] = from_float<T>(0);
}

/// A team per row. Bound by memory: logits are read once.
template <class T, bool kWarp>
__global__ void __launch_bounds__(kMaxThreads)
    partial_kernel(float* stat, const T* logits, const int32_t* labels, Problem p) {
  SharedMemory memory;
  Team<kWarp> team(memory);
  for (int64_t r = team.first_row(); r < p.rows; r += team.num_teams()) {
    const Stat s = row_statistics(team, logits + r * p.ld, labels[r], p);
    if (team.rank() == 0) *reinterpret_cast<Stat*>(stat + 4 * r) = s;
  }
}

/// A team per row; without a scale only losses are written. Bound by memory: logits are read and written once.
template <class T, bool kWarp>
__global__ void __launch_bounds__(kMaxThreads)
    finish_kernel(float* losses, T* logits, const int32_t* labels, const float* stat, const float* scale, Problem p) {
  SharedMemory memory;
  Team<kWarp> team(memory);
  for (int64_t r = team.first_row(); r < p.rows; r += team.num_teams()) {
    const Stat s = *reinterpret_cast<const Stat*>(stat + 4 * r);
    if (team.rank() == 0) losses[r] = row_loss(s, labels[r], p);
    if (scale) write_gradient(team, logits + r * p.ld, labels[r], s, *scale, p);
  }
}

/// Both in one: a team per row, which it reads twice, the second time from the cache. Few rows are in work at a time,
/// so that they fit there. Bound by memory: logits are read and written once.
template <class T, bool kWarp>
__global__ void __launch_bounds__(kMaxThreads)
    whole_kernel(float* losses, T* logits, const int32_t* labels, const float* scale, Problem p) {
  SharedMemory memory;
  Team<kWarp> team(memory);
  for (int64_t r = team.first_row(); r < p.rows; r += team.num_teams()) {
    T* row = logits + r * p.ld;
    const Stat s = row_statistics(team, row, labels[r], p);
    if (team.rank() == 0) losses[r] = row_loss(s, labels[r], p);
    if (!scale) continue;
    team.sync();  // all have read the label's logit
    write_gradient(team, row, labels[r], s, *scale, p);
  }
}

/// A thread per row.
__global__ void __launch_bounds__(256)
    combine_kernel(float* stat, const float* parts, int64_t num_parts, int64_t rows) {
  for (int64_t r = block() * num_threads() + thread(); r < rows; r += num_blocks() * num_threads()) {
    const auto part = [=](int64_t i) { return *reinterpret_cast<const Stat*>(parts + 4 * (i * rows + r)); };
    Stat all{part(0).max, 0, 0, 0};
    for (int64_t i = 1; i < num_parts; ++i) all.max = Max{}(part(i).max, all.max);
    for (int64_t i = 0; i < num_parts; ++i) {
      const Stat s = part(i);
      all.sum += s.sum * weight(s.max - all.max);
      all.label += s.label;
      all.total += s.total;
    }
    *reinterpret_cast<Stat*>(stat + 4 * r) = all;
  }
}

/// One block of threads.
__global__ void __launch_bounds__(kMaxThreads) sum_kernel(float* sum, bool overwrite, const float* losses, int64_t n) {
  SharedMemory memory;
  auto scratch = memory.take<double>(kMaxWarps);
  double total = 0;
  for (int64_t i = thread() * int64_t{kVec<float>}; i < n; i += num_threads() * kVec<float>) {
    const Floats<float> v = load(losses + i, n - i);
    for (int e = 0; e < kVec<float>; ++e) total += static_cast<double>(v[e]);
  }
  total = block_reduce(total, 0.0, Sum{}, scratch);
  if (thread() == 0) *sum = static_cast<float>(total + (overwrite ? 0 : static_cast<double>(*sum)));
}

/// One block of threads.
__global__ void __launch_bounds__(kMaxThreads)
    count_kernel(int32_t* count, bool overwrite, const int32_t* labels, int64_t n) {
  SharedMemory memory;
  auto scratch = memory.take<int32_t>(kMaxWarps);
  int32_t counted = 0;
#pragma unroll 4
  for (int64_t i = thread(); i < n; i += num_threads()) counted += labels[i] != kIgnore;
  counted = block_reduce(counted, 0, Sum{}, scratch);
  if (thread() == 0) *count = counted + (overwrite ? 0 : *count);
}

/// Long rows go to blocks of many threads, longer ones to more: the rows in work then fit into the cache, and blocks
/// that wait for memory stand beside others that compute.
RowLaunch launch_of(const char* kernel, const Rows& logits) {
  constexpr int64_t kHuge = 128 << 10;  // bytes
  RowLaunch l = row_launch(kernel, logits.rows, logits.cols);
  if (!l.by_warp) l.how.threads = logits.cols * size_of(logits.dtype) > kHuge ? kMaxThreads : kMaxThreads / 2;
  return l;
}

Problem problem(const Rows& logits, int64_t padded_cols, const CrossEntropyShape& shape) {
  return {logits.rows,          logits.cols, logits.ld, padded_cols, shape.first, static_cast<float>(shape.vocab),
          shape.label_smoothing};
}

}  // namespace

void cross_entropy(Stream& s, Tensor losses, Rows logits, int64_t padded_cols, View labels, View scale,
                   const CrossEntropyShape& shape) {
  const auto [by_warp, how] = launch_of("whole_kernel", logits);
  by_gpu_float(logits.dtype, [&]<class T>() {
    launch(s, how, by_warp ? whole_kernel<T, true> : whole_kernel<T, false>, losses.data<float>(), logits.data<T>(),
           labels.data<int32_t>(), scale.present() ? scale.data<float>() : nullptr,
           problem(logits, padded_cols, shape));
  });
}

void cross_entropy_partial(Stream& s, Tensor stat, Rows logits, View labels, const CrossEntropyShape& shape) {
  const auto [by_warp, how] = launch_of("partial_kernel", logits);
  by_gpu_float(logits.dtype, [&]<class T>() {
    launch(s, how, by_warp ? partial_kernel<T, true> : partial_kernel<T, false>, stat.data<float>(), logits.data<T>(),
           labels.data<int32_t>(), problem(logits, logits.cols, shape));
  });
}

void cross_entropy_combine(Stream& s, Tensor stat, View parts) {
  const int64_t rows = stat.shape[0];
  launch(s, {.kernel = "combine_kernel", .blocks = std::clamp<int64_t>((rows + 255) / 256, 1, 1 << 16)}, combine_kernel,
         stat.data<float>(), parts.data<float>(), parts.shape[0], rows);
}

void cross_entropy_finish(Stream& s, Tensor losses, Rows logits, int64_t padded_cols, View labels, View stat,
                          View scale, const CrossEntropyShape& shape) {
  const auto [by_warp, how] = launch_of("finish_kernel", logits);
  by_gpu_float(logits.dtype, [&]<class T>() {
    launch(s, how, by_warp ? finish_kernel<T, true> : finish_kernel<T, false>, losses.data<float>(), logits.data<T>(),
           labels.data<int32_t>(), stat.data<float>(), scale.present() ? scale.data<float>() : nullptr,
           problem(logits, padded_cols, shape));
  });
}

void sum_losses(Stream& s, Tensor sum, bool overwrite, View losses) {
  launch(s,
         {.kernel = "sum_kernel",
          .threads = threads_for(losses.numel()),
          .shared = shared_bytes<double>(kMaxThreads / 32)},
         sum_kernel, sum.data<float>(), overwrite, losses.data<float>(), losses.numel());
}

void count_labels(Stream& s, Tensor count, bool overwrite, View labels) {
  launch(s,
         {.kernel = "count_kernel",
          .threads = threads_for(labels.numel()),
          .shared = shared_bytes<int32_t>(kMaxThreads / 32)},
         count_kernel, count.data<int32_t>(), overwrite, labels.data<int32_t>(), labels.numel());
}

}  // namespace chiron::gpu
