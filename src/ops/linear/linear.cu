#include "core/launch.h"
#include "gpu/vec.h"
#include "ops/linear/linear_gpu.h"

namespace chiron::gpu {
namespace {

constexpr int kThreads = 256, kAcross = 32, kGroups = kThreads / kAcross;

/// A block sums kAcross times 16 bytes of columns over a range of rows, each of its groups of threads every kGroups-th
/// row of them; then the groups' sums are added, all in order. Bound by memory: dy is read once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(float* parts, const T* dy, int64_t ld, int64_t rows, int64_t cols, int64_t rows_per_part) {
  SharedMemory memory;
  Shared<float> sums = memory.take<float>(kThreads * kVec<T>);
  const int64_t across = (cols + kAcross * kVec<T> - 1) / (kAcross * kVec<T>), part = block() / across;
  const int64_t col = (block() % across * kAcross + thread() % kAcross) * kVec<T>;
  const int64_t begin = part * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
  const int group = thread() / kAcross;
  Floats<T> sum{};
  if (col < cols)
    for (int64_t r = begin + group; r < end; r += kGroups) {
      const Floats<T> x = load(dy + r * ld + col, cols - col);
      for (int i = 0; i < kVec<T>; ++i) sum[i] += x[i];
    }
  for (int i = 0; i < kVec<T>; ++i) sums[i * kThreads + thread()] = sum[i];
  sync_block();
  if (group > 0) return;
  for (int i = 0; i < kVec<T> && col + i < cols; ++i) {
    float x = sum[i];
    for (int g = 1; g < kGroups; ++g) x += sums[i * kThreads + g * kAcross + thread()];
    parts[part * cols + col + i] = x;
  }
}

}  // namespace

void column_sums(Stream& s, Tensor parts, Rows dy) {
  const int64_t num_parts = parts.shape[0];
  if (num_parts == 0 || dy.cols == 0) return;
  by_gpu_float(dy.dtype, [&]<class T>() {
    const int64_t across = (dy.cols + kAcross * kVec<T> - 1) / (kAcross * kVec<T>);
    launch(s,
           {.kernel = "column_sums_kernel",
            .blocks = across * num_parts,
            .threads = kThreads,
            .shared = shared_bytes<float>(kThreads * kVec<T>)},
           column_sums_kernel<T>, parts.data<float>(), dy.data<T>(), dy.ld, dy.rows, dy.cols,
           (dy.rows + num_parts - 1) / num_parts);
  });
}

}  // namespace chiron::gpu
