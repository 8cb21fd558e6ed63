#pragma once

#include "core/launch.h"
#include "gpu/fragment.h"
#include "gpu/vec.h"
#include "ops/gemm/gemm_gpu.h"

/// The tiled product. One .cu file per kind of operands instantiates it.
namespace chiron::gpu {

/// A block's part of C, and how it is worked on: kDepth of K at a time, kStages such slices of A and B in shared
/// memory.
template <int kRows_, int kCols_, int kDepthBytes_, int kThreads_, int kStages_, bool kAligned_>
struct Cut {
  static constexpr int kRows = kRows_, kCols = kCols_, kDepthBytes = kDepthBytes_, kThreads = kThreads_,
                       kStages = kStages_;
  static constexpr bool kAligned = kAligned_;  // rows of A and B are 16-byte aligned, else they may be
};
template <class T>
using SmallCut = Cut<64, 64, 64, 128, 4, false>;
/// 64 x 64 of C by a warp of 32 in 16-bit kinds; in float, whose operands take more registers, half of it.
template <class T>
using MediumCut = Cut<128, 128, 64, sizeof(T) == 2 ? 128 : 256, 3, true>;
template <class T>
using LargeCut = Cut<128, 256, 128, 256, 3, true>;

template <class T>
struct ProductArguments {
  const T *a, *b;
  int64_t lda, ldb;
  int m, n, k;
  int k_per_split;               // a multiple of every depth
  int tiles_down, tiles_across;  // of C
  float* partial;                // (splits, m, ld_partial), null: the block finishes C itself
  int64_t ld_partial;
  // C and what is added, of C's kind.
  void* c;
  const void *bias, *addend;
  int64_t ldc, ld_addend;
  bool wide;                  // C is f32 though T is not
  bool aligned_a, aligned_b;  // rows are, to 16 bytes
};

/// v + bias + addend into C, columns [col, col + kVec) of a row, as far as there are any.
template <class Out, class T>
__device__ void finish(const ProductArguments<T>& g, int64_t row, int col, Floats<Out> v) {
  const int64_t n = g.n - col;
  auto add = [&](const void* from, int64_t at) {
    const Floats<Out> x = load(static_cast<const Out*>(from) + at, n);
    for (int i = 0; i < kVec<Out>; ++i) v[i] += x[i];
  };
  if (g.bias) add(g.bias, col);
  if (g.addend) add(g.addend, row * g.ld_addend + col);
  store(static_cast<Out*>(g.c) + row * g.ldc + col, v, n);
}

/// What one thread copies of tiles of kLines x kWidth elements that lie in rows in memory: 16 bytes here and there. In
/// shared memory a row is followed by 16 bytes, so that rows do not start in the same bank.
template <class T, int kLines, int kWidth, int kThreads>
class TileSource {
 public:
  static constexpr int kLd = kWidth + kVec<T>, kSize = kLines * kLd;

  /// The first tile starts at p; beyond `lines` lines of `width` elements everything is zero.
  __device__ TileSource(const T* p, int64_t ld, int64_t lines, int64_t width, bool aligned)
      : aligned_(aligned), group_(ld * kLinesAtOnce), line_(thread() / kPerLine) {
    col_ = thread() % kPerLine * kVec<T>;
    at_ = p + line_ * ld + col_;
    lines_ = static_cast<int>(lines) - line_;
    width_ = static_cast<int>(width) - col_;
  }

  template <bool kAligned>
  __device__ void copy_to(Shared<T> tile) const {
    const int most = width_ < kVec<T> ? (width_ > 0 ? width_ : 0) : kVec<T>;
    auto each = [&](auto&& copy) {
#pragma unroll
      for (int i = 0; i < kLines / kLinesAtOnce; ++i) {
        const int n = i * kLinesAtOnce < lines_ ? most : 0;
        copy(tile + ((line_ + i * kLinesAtOnce) * kLd + col_), at_ + i * group_, n);
      }
    };
    if (kAligned || aligned_)
      each([](Shared<T> to, const T* from, int n) { copy_async(to, from, n * static_cast<int>(sizeof(T))); });
    else
      each([](Shared<T> to, const T* from, int n) {
        for (int j = 0; j < kVec<T>; ++j) to[j] = j < n ? from[j] : from_float<T>(0);
      });
  }

  /// To the next tile along the rows, or down by that many lines.
  __device__ void next_along() {
    at_ += kWidth;
    width_ -= kWidth;
  }
  __device__ void next_down() {
    at_ += group_ * (kLines / kLinesAtOnce);
    lines_ -= kLines;
  }

 private:
  static constexpr int kPerLine = kWidth / kVec<T>, kLinesAtOnce = kThreads / kPerLine;
  static_assert(kThreads % kPerLine == 0 && kLines % kLinesAtOnce == 0);
  const T* at_;
  bool aligned_;
  int64_t group_;
  int line_, col_, lines_, width_;
};

/// What the kernel is launched with, and where everything stands in shared memory: kOperand is A (outer: rows of C) or
/// B (columns of C), transposed if K runs down in memory.
template <class T, int kOuter, int kDepth, int kThreads, bool kDown>
using OperandSource =
    std::conditional_t<kDown, TileSource<T, kDepth, kOuter, kThreads>, TileSource<T, kOuter, kDepth, kThreads>>;

template <class T, class C, bool kDownA, bool kDownB>
struct Blocks {
  static constexpr int kDepth = C::kDepthBytes / static_cast<int>(sizeof(T));
  using A = OperandSource<T, C::kRows, kDepth, C::kThreads, kDownA>;
  using B = OperandSource<T, C::kCols, kDepth, C::kThreads, kDownB>;
  static constexpr int64_t kShared = shared_bytes<T>(C::kStages * A::kSize) + shared_bytes<T>(C::kStages * B::kSize);
};

/// A block computes a tile of C over a range of K, each warp a part of the tile in its registers. Slices of A and B go
/// through shared memory, kStages - 1 of them under way; a warp loads the operands of one step while it multiplies
/// those of the step before. Bound by the matrix units (by FMAs in float), closely followed by shared memory.
template <class T, class C, bool kDownA, bool kDownB>
__global__ void __launch_bounds__(C::kThreads) product_kernel(ProductArguments<T> g) {
  using Places = Blocks<T, C, kDownA, kDownB>;
  using SourceA = typename Places::A;
  using SourceB = typename Places::B;
  constexpr int kDepth = Places::kDepth, kStages = C::kStages, kSteps = kDepth / Tile<T>::kK;
  constexpr int kWarps = C::kThreads / kLanes, kWarpsDown = kWarps >= 4 ? 2 : 1, kWarpsAcross = kWarps / kWarpsDown;
  constexpr int kWarpRows = C::kRows / kWarpsDown, kWarpCols = C::kCols / kWarpsAcross;
  constexpr int kDown = kWarpRows / 16, kAcross = kWarpCols / 16;

  SharedMemory memory;
  const Shared<T> all_a = memory.take<T>(kStages * SourceA::kSize);
  const Shared<T> all_b = memory.take<T>(kStages * SourceB::kSize);

  // Blocks that run at the same time share rows and columns: bands of kBand tiles downwards, left to right.
  constexpr int kBand = 8;
  const int64_t tiles = static_cast<int64_t>(g.tiles_down) * g.tiles_across;
  const int split = static_cast<int>(block() / tiles);
  const int64_t tile = block() % tiles, band = tile / (static_cast<int64_t>(kBand) * g.tiles_across);
  const int left = g.tiles_down - static_cast<int>(band) * kBand, high = left < kBand ? left : kBand;
  const int64_t in_band = tile - band * kBand * g.tiles_across;
  const int row = (static_cast<int>(band) * kBand + static_cast<int>(in_band % high)) * C::kRows;
  const int col = static_cast<int>(in_band / high) * C::kCols;
  const int k_begin = split * g.k_per_split;
  const int k_size = g.k - k_begin < g.k_per_split ? g.k - k_begin : g.k_per_split;

  SourceA source_a(g.a + (kDownA ? k_begin * g.lda + row : row * g.lda + k_begin), g.lda, kDownA ? k_size : g.m - row,
                   kDownA ? g.m - row : k_size, g.aligned_a);
  SourceB source_b(g.b + (kDownB ? k_begin * g.ldb + col : col * g.ldb + k_begin), g.ldb, kDownB ? k_size : g.n - col,
                   kDownB ? g.n - col : k_size, g.aligned_b);
  const int slices = (k_size + kDepth - 1) / kDepth;
  int fetched = 0;
  auto fetch = [&] {
    if (fetched < slices) {
      source_a.template copy_to<C::kAligned>(all_a + fetched % kStages * SourceA::kSize);
      source_b.template copy_to<C::kAligned>(all_b + fetched % kStages * SourceB::kSize);
      kDownA ? source_a.next_down() : source_a.next_along();
      kDownB ? source_b.next_down() : source_b.next_along();
    }
    ++fetched;
    copy_async_commit();
  };

  const int warp_row = warp() / kWarpsAcross * kWarpRows, warp_col = warp() % kWarpsAcross * kWarpCols;
  typename Tile<T>::A a[2][kDown];
  typename Tile<T>::B b[2][kAcross];
  typename Tile<T>::C c[kDown][kAcross] = {};
  auto load_step = [&](int to, int slice, int step) {
    const Shared<T> pa = all_a + slice % kStages * SourceA::kSize, pb = all_b + slice % kStages * SourceB::kSize;
    const int k = step * Tile<T>::kK;
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const int at = warp_row + i * 16;
      a[to][i] = kDownA ? Tile<T>::load_a_transposed(pa + (k * SourceA::kLd + at), SourceA::kLd)
                        : Tile<T>::load_a(pa + (at * SourceA::kLd + k), SourceA::kLd);
    }
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      const int at = warp_col + j * 16;
      b[to][j] = kDownB ? Tile<T>::load_b_transposed(pb + (k * SourceB::kLd + at), SourceB::kLd)
                        : Tile<T>::load_b(pb + (at * SourceB::kLd + k), SourceB::kLd);
    }
  };

  for (int i = 0; i < kStages - 1; ++i) fetch();
  copy_async_wait<kStages - 2>();
  sync_block();
  if (slices > 0) load_step(0, 0, 0);
  static_assert(kSteps % 2 == 0);
  for (int slice = 0; slice < slices; ++slice) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) {
        load_step((step + 1) % 2, slice, step + 1);
      } else {
        // The next slice is there for all, and the stage that the fetch after this refills has been read by all.
        copy_async_wait<kStages - 2>();
        sync_block();
        if (slice + 1 < slices) load_step(0, slice + 1, 0);
      }
      if (step == 0) fetch();
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j) Tile<T>::mma(c[i][j], a[step % 2][i], b[step % 2][j]);
    }
  }

  // Through shared memory, 16 rows of each warp at a time, so that memory is touched 16 bytes at a time.
  sync_block();
  constexpr int kStripLd = kWarpCols + 4;
  static_assert(shared_bytes<float>(kWarps * 16 * kStripLd) <= shared_bytes<T>(kStages * SourceA::kSize));
  const Shared<float> strip = all_a.template as<float>() + warp() * 16 * kStripLd;
  auto emit = [&]<class Out>(int first_row, int64_t cols, auto&& put) {
    constexpr int kPerRow = kWarpCols / kVec<Out>;
    for (int i = lane(); i < 16 * kPerRow; i += kLanes) {
      const int r = i / kPerRow, at = i % kPerRow * kVec<Out>;
      if (first_row + r >= g.m || col + warp_col + at >= cols) continue;
      Floats<Out> v;
      for (int part = 0; part < kVec<Out>; part += kVec<float>) {
        const Floats<float> x = unpack<float>(load16(&strip[r * kStripLd + at + part]));
        for (int j = 0; j < kVec<float>; ++j) v[part + j] = x[j];
      }
      put(static_cast<int64_t>(first_row + r), col + warp_col + at, v);
    }
  };
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    sync_warp();
#pragma unroll
    for (int j = 0; j < kAcross; ++j)
      for (int r = 0; r < Tile<T>::kRegs; ++r)
        strip[Tile<T>::row(r) * kStripLd + j * 16 + Tile<T>::col(r)] = c[i][j].x[r];
    sync_warp();
    const int first_row = row + warp_row + i * 16;
    if (g.partial) {
      emit.template operator()<float>(first_row, g.ld_partial, [&](int64_t r, int at, const Floats<float>& v) {
        store(g.partial + (static_cast<int64_t>(split) * g.m + r) * g.ld_partial + at, v, kVec<float>);
      });
      continue;
    }
    if constexpr (sizeof(T) == 2) {
      if (g.wide) {
        emit.template operator()<float>(first_row, g.n,
                                        [&](int64_t r, int at, const Floats<float>& v) { finish<float>(g, r, at, v); });
        continue;
      }
    }
    emit.template operator()<T>(first_row, g.n, [&](int64_t r, int at, const Floats<T>& v) { finish<T>(g, r, at, v); });
  }
}

/// C from its partial sums, in order: a thread has 16 bytes of C. Bound by memory.
template <class T, class Out>
__global__ void __launch_bounds__(256) sum_splits_kernel(ProductArguments<T> g, int splits) {
  const int64_t per_row = (g.n + kVec<Out> - 1) / kVec<Out>, all = per_row * g.m;
  for (int64_t i = block() * num_threads() + thread(); i < all; i += num_blocks() * num_threads()) {
    const int64_t row = i / per_row;
    const int col = static_cast<int>(i % per_row) * kVec<Out>;
    Floats<Out> sum{};
    for (int s = 0; s < splits; ++s) {
      const float* from = g.partial + (static_cast<int64_t>(s) * g.m + row) * g.ld_partial + col;
      for (int part = 0; part < kVec<Out>; part += kVec<float>) {
        const Floats<float> x = load(from + part, kVec<float>);
        for (int j = 0; j < kVec<float>; ++j) sum[part + j] += x[j];
      }
    }
    finish<Out>(g, row, col, sum);
  }
}

template <class T, class C, bool kDownA, bool kDownB>
void launch_product(Stream& s, const ProductArguments<T>& g, int splits) {
  const int64_t tiles = static_cast<int64_t>(g.tiles_down) * g.tiles_across;
  launch(s,
         {.kernel = "product_kernel",
          .blocks = tiles * splits,
          .threads = C::kThreads,
          .shared = Blocks<T, C, kDownA, kDownB>::kShared},
         product_kernel<T, C, kDownA, kDownB>, g);
}

template <class T, class C>
void launch_cut(Stream& s, const Product& p, ProductArguments<T> g, int splits) {
  g.tiles_down = (g.m + C::kRows - 1) / C::kRows;
  g.tiles_across = (g.n + C::kCols - 1) / C::kCols;
  const bool down_a = p.op_a == Op::transpose, down_b = p.op_b == Op::none;
  if (down_a)
    down_b ? launch_product<T, C, true, true>(s, g, splits) : launch_product<T, C, true, false>(s, g, splits);
  else
    down_b ? launch_product<T, C, false, true>(s, g, splits) : launch_product<T, C, false, false>(s, g, splits);
}

/// What tiled_product() does, for operands of T.
template <class T>
void tiled_product_of(Stream& s, const Product& p, const Tiling& tiling, Tensor scratch) {
  auto at = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
  ProductArguments<T> g{.a = p.a.template data<T>(),
                        .b = p.b.template data<T>(),
                        .lda = p.a.ld,
                        .ldb = p.b.ld,
                        .m = static_cast<int>(p.m()),
                        .n = static_cast<int>(p.n()),
                        .k = static_cast<int>(p.k()),
                        .c = at(p.c.at),
                        .bias = at(p.bias.at),
                        .addend = at(p.addend.at),
                        .ldc = p.c.ld,
                        .ld_addend = p.addend.ld,
                        .wide = p.c.dtype == DType::f32 && sizeof(T) == 2,
                        .aligned_a = alignment_of(p.a) == 16,
                        .aligned_b = alignment_of(p.b) == 16};
  const auto [k_per_split, splits, ld_partial, bytes] = split_depth(p, tiling);
  CHECK(scratch.bytes() >= bytes);
  g.k_per_split = static_cast<int>(k_per_split);
  g.ld_partial = ld_partial;
  if (splits > 1) g.partial = static_cast<float*>(at(scratch.at));
  Tiling::Cut cut = g.aligned_a && g.aligned_b ? tiling.cut : Tiling::small;
  if constexpr (sizeof(T) == 2) {
    if (cut == Tiling::large && s.traits().shared_memory < Blocks<T, LargeCut<T>, false, false>::kShared)
      cut = Tiling::medium;
    if (cut == Tiling::large) launch_cut<T, LargeCut<T>>(s, p, g, splits);
  }
  if (cut == Tiling::medium) launch_cut<T, MediumCut<T>>(s, p, g, splits);
  if (cut == Tiling::small) launch_cut<T, SmallCut<T>>(s, p, g, splits);
  if (splits == 1) return;

  auto add_up = [&]<class Out>() {
    constexpr int64_t kMostBlocks = 1 << 16;
    const int64_t blocks = (p.m() * ((p.n() + kVec<Out> - 1) / kVec<Out>)+255) / 256;
    launch(s, {.kernel = "sum_splits_kernel", .blocks = blocks < kMostBlocks ? blocks : kMostBlocks},
           sum_splits_kernel<T, Out>, g, splits);
  };
  g.wide ? add_up.template operator()<float>() : add_up.template operator()<T>();
}

}  // namespace chiron::gpu
