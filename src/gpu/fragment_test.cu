#include "gpu/fragment.h"

#include <gtest/gtest.h>

#include <vector>

namespace chiron::gpu {
namespace {

constexpr int kSide = 16, kLd = 24, kProblems = 2;

/// What a warp makes of 16 x 16 operands A and B, each with an ld of kLd.
struct Results {
  float product[kSide][kSide], again[kSide][kSide], row_sums[kSide];
};

/// Problem p, which a warp has: AB, (AB rounded) B, and the sums of AB's rows.
template <class T, bool kTransposeA, bool kTransposeB>
__global__ void __launch_bounds__(64) multiply_tiles(Results* results, const T* a, const T* b) {
  constexpr int kSize = kSide * kLd, kSteps = kSide / Tile<T>::kK;
  SharedMemory memory;
  Shared<T> all = memory.take<T>(kProblems * 3 * kSize);
  for (int problem = warp(); problem < kProblems; problem += num_warps()) {
    Shared<T> pa = all + problem * 3 * kSize, pb = pa + kSize, scratch = pb + kSize;
    for (int i = lane(); i < kSize; i += kLanes) {
      pa[i] = a[problem * kSize + i];
      pb[i] = b[problem * kSize + i];
    }
    sync_warp();
    auto load_b = [&](int step) {
      const int k = step * Tile<T>::kK;
      return kTransposeB ? Tile<T>::load_b_transposed(pb + k * kLd, kLd) : Tile<T>::load_b(pb + k, kLd);
    };
    typename Tile<T>::C c{}, d{};
    for (int step = 0; step < kSteps; ++step) {
      const int k = step * Tile<T>::kK;
      const auto left = kTransposeA ? Tile<T>::load_a_transposed(pa + k * kLd, kLd) : Tile<T>::load_a(pa + k, kLd);
      Tile<T>::mma(c, left, load_b(step));
    }
    const auto wide = Tile<T>::as_a(c, scratch);
    for (int step = 0; step < kSteps; ++step) Tile<T>::mma(d, Tile<T>::step(wide, step), load_b(step));

    Results& r = results[problem];
    float sums[Tile<T>::kRows] = {};
    for (int i = 0; i < Tile<T>::kRegs; ++i) {
      r.product[Tile<T>::row(i)][Tile<T>::col(i)] = c.x[i];
      r.again[Tile<T>::row(i)][Tile<T>::col(i)] = d.x[i];
      sums[Tile<T>::row_slot(i)] += c.x[i];
    }
    for (int slot = 0; slot < Tile<T>::kRows; ++slot) {
      for (int mask = Tile<T>::kRowLanes / 2; mask > 0; mask /= 2) sums[slot] += shuffle_xor(sums[slot], mask);
      if (lane() % Tile<T>::kRowLanes == 0) r.row_sums[Tile<T>::row_of(slot)] = sums[slot];
    }
  }
}

/// A small integer, of which all sums and products here are exact in every kind.
float value(int problem, int operand, int i, int j) {
  return static_cast<float>((i * 7 + j * 5 + i * j + problem + 3 * operand) % 5 - 2);
}

template <class T, bool kTransposeA, bool kTransposeB>
void expect_products() {
  constexpr int kSize = kSide * kLd;
  std::vector<T> a(kProblems * kSize, T(100.0f)), b = a;
  for (int p = 0; p < kProblems; ++p)
    for (int i = 0; i < kSide; ++i)
      for (int k = 0; k < kSide; ++k) {
        a[static_cast<size_t>(p * kSize + (kTransposeA ? k * kLd + i : i * kLd + k))] = T(value(p, 0, i, k));
        b[static_cast<size_t>(p * kSize + (kTransposeB ? k * kLd + i : i * kLd + k))] = T(value(p, 1, k, i));
      }
  const StreamHandle s = make_stream(0);
  auto upload = [&](const void* from, size_t bytes) {
    void* to = allocate(0, static_cast<int64_t>(bytes));
    copy(s, to, from, static_cast<int64_t>(bytes), Direction::upload);
    return to;
  };
  std::vector<Results> results(kProblems);
  const auto bytes = results.size() * sizeof(Results);
  void* pa = upload(a.data(), a.size() * sizeof(T));
  void* pb = upload(b.data(), b.size() * sizeof(T));
  void* out = upload(results.data(), bytes);
  launch(s, {.kernel = "multiply_tiles", .threads = 64, .shared = shared_bytes<T>(kProblems * 3 * kSize)},
         multiply_tiles<T, kTransposeA, kTransposeB>, static_cast<Results*>(out), static_cast<T*>(pa),
         static_cast<T*>(pb));
  copy(s, results.data(), out, static_cast<int64_t>(bytes), Direction::download);
  synchronize(s);
  for (void* p : {pa, pb, out}) release(0, p);
  destroy(s);

  for (int p = 0; p < kProblems; ++p) {
    const Results& got = results[static_cast<size_t>(p)];
    float c[kSide][kSide] = {};
    for (int i = 0; i < kSide; ++i) {
      float sum = 0;
      for (int j = 0; j < kSide; ++j) {
        for (int k = 0; k < kSide; ++k) c[i][j] += value(p, 0, i, k) * value(p, 1, k, j);
        EXPECT_EQ(got.product[i][j], c[i][j]) << "problem " << p << " at " << i << ", " << j;
        sum += c[i][j];
      }
      EXPECT_EQ(got.row_sums[i], sum) << "problem " << p << " row " << i;
    }
    for (int i = 0; i < kSide; ++i)
      for (int j = 0; j < kSide; ++j) {
        float d = 0;
        for (int k = 0; k < kSide; ++k) d += c[i][k] * value(p, 1, k, j);
        EXPECT_EQ(got.again[i][j], d) << "problem " << p << " at " << i << ", " << j;
      }
  }
}

template <class T>
void expect_products_of() {
  expect_products<T, false, false>();
  expect_products<T, false, true>();
  expect_products<T, true, false>();
  expect_products<T, true, true>();
}

TEST(GpuFragment, TilesMultiply) {
  if (num_devices() == 0) GTEST_SKIP() << why_no_device();
  expect_products_of<float>();
  expect_products_of<bf16>();
  expect_products_of<f16>();
}

}  // namespace
}  // namespace chiron::gpu
