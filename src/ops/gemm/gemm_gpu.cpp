#include "ops/gemm/gemm_gpu.h"

#include <algorithm>
#include <array>

#include "ops/gemm/gemm_choices.h"

namespace chiron {
namespace {

int64_t div_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

}  // namespace

Splits split_depth(const Product& p, const Tiling& tiling) {
  constexpr int64_t kDepthUnit = 64, kColUnit = 8;
  Splits s;
  s.k_per_split = std::max(div_up(div_up(p.k(), tiling.splits), kDepthUnit), int64_t{1}) * kDepthUnit;
  s.splits = static_cast<int>(std::max(div_up(p.k(), s.k_per_split), int64_t{1}));
  s.ld_partial = div_up(p.n(), kColUnit) * kColUnit;
  s.bytes = s.splits == 1 ? 0 : s.splits * p.m() * s.ld_partial * size_of(DType::f32);
  return s;
}

Tiling choose_tiling(const Product& p) {
  // A model of a large device: how many blocks run at once, what share of its peak they reach then.
  struct Kind {
    Tiling::Cut cut;
    int64_t rows, cols, at_once;
    double rate;
  };
  constexpr std::array<Kind, 3> kKinds = {{{Tiling::small, 64, 64, 4 * 132, 0.5},
                                           {Tiling::medium, 128, 128, 2 * 132, 0.85},
                                           {Tiling::large, 128, 256, 132, 1.0}}};
  constexpr double kPeak = 4e14, kFloatPeak = 4e13, kBandwidth = 3e12, kAnotherKernel = 4e-6;
  constexpr int64_t kLeastDepth = 256, kMostScratch = 64 << 20;
  const bool wide = p.a.dtype == DType::f32;
  Tiling best;
  double least = 0;
  for (const Kind& kind : kKinds) {
    if (wide && kind.cut == Tiling::large) continue;
    const int64_t tiles = div_up(p.m(), kind.rows) * div_up(p.n(), kind.cols);
    auto allowed = [&](int64_t splits) {
      return splits == 1 || (splits * kLeastDepth <= p.k() && tiles * splits <= 2 * kind.at_once &&
                             split_depth(p, {kind.cut, static_cast<int>(splits)}).bytes <= kMostScratch);
    };
    for (int64_t splits = 1; allowed(splits); ++splits) {
      const double work = 2.0 * static_cast<double>(kind.rows * kind.cols * div_up(p.k(), splits) * kind.at_once);
      double time =
          static_cast<double>(div_up(tiles * splits, kind.at_once)) * work / (kind.rate * (wide ? kFloatPeak : kPeak));
      if (splits > 1)
        time += kAnotherKernel + static_cast<double>(2 * splits * p.m() * p.n() * size_of(DType::f32)) / kBandwidth;
      if (least != 0 && time >= least) continue;
      least = time;
      best = {kind.cut, static_cast<int>(splits)};
    }
  }
  return best;
}

int64_t product_scratch_bytes(const Product& p) {
  int64_t bytes = split_depth(p, choose_tiling(p)).bytes;
  if constexpr (gpu::kBuilt)
    if (gpu::has_blaslt()) bytes = std::max(bytes, gpu::product_workspace(p));
  return bytes;
}

Tensor push_product_scratch(Stream& s, const Product& p, Stack& temp) {
  if (s.dry() && s.gemm_choices()) s.gemm_choices()->note(p, s.tf32());
  return temp.push(DType::u8, {product_scratch_bytes(p)});
}

namespace gpu {

int64_t product_workspace(const Product& p) {
  constexpr int64_t kLeast = 1 << 20, kMost = 64 << 20, kPartialSums = 16;
  return std::clamp(kPartialSums * p.m() * p.n() * size_of(DType::f32), kLeast, kMost);
}

void product(Stream& s, const Product& p, Tensor scratch) {
  if (p.m() == 0 || p.n() == 0) return;
  GemmChoices* choices = s.gemm_choices();
  if (const BlasLt::Algorithm* algorithm = choices ? choices->find(p, s.tf32()) : nullptr)
    return choices->blaslt()->multiply(s, p, s.tf32(), *algorithm, scratch);
  tiled_product(s, p, choose_tiling(p), scratch);
}

void tiled_product(Stream& s, const Product& p, const Tiling& tiling, Tensor scratch) {
  if constexpr (kBuilt) by_gpu_float(p.a.dtype, [&]<class T>() { tiled_product_of<T>(s, p, tiling, scratch); });
}

}  // namespace gpu
}  // namespace chiron
