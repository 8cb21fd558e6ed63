#include "ops/adamw/adamw.h"

#include "core/simd.h"
#include "ops/adamw/adamw_gpu.h"
#include "ops/adamw/adamw_rules.h"

namespace chiron {
namespace {

/// Elements [begin, end) of a shard; C is the type of the compute copy, void if there is none.
template <class C>
void update(const Shard& shard, int64_t begin, int64_t end, const AdamWCoefficients& k) {
  float *pw = shard.master.data<float>() + begin, *pm = shard.m.data<float>() + begin;
  float* pv = shard.v.data<float>() + begin;
  const float* pg = shard.grad.data<float>() + begin;
  const float decay = shard.decay ? k.decay : 0;
  simd::for_each_vector(end - begin, [&](int64_t i, auto n) {
    simd::F32 g = simd::load(pg + i, n) * k.clip, w = simd::load(pw + i, n);
    simd::F32 m = k.beta1 * simd::load(pm + i, n) + k.rest1 * g;
    simd::F32 v = k.beta2 * simd::load(pv + i, n) + k.rest2 * g * g;
    w = w - (k.rate * m / (simd::sqrt<float>(v) * k.root + k.eps) + decay * w);
    simd::store(pm + i, m, n);
    simd::store(pv + i, v, n);
    simd::store(pw + i, w, n);
    if constexpr (!std::is_void_v<C>) simd::store(shard.compute.data<C>() + begin + i, w, n);
  });
}

}  // namespace

void adamw(Stream& s, const StepScalars* scalars, const Shards& shards, const AdamWOptions& options) {
  int64_t elements = 0, narrow_elements = 0;
  for (const Shard& shard : shards) {
    const int64_t n = shard.master.numel();
    elements += n;
    if (shard.compute.present()) narrow_elements += n;
    for (const Tensor& t : {shard.master, shard.grad, shard.m, shard.v})
      CHECK(t.dtype == DType::f32 && t.numel() == n, "state of parameter {}: {} {}, the master is {}", shard.param,
            name_of(t.dtype), t.shape.str(), shard.master.shape.str());
    CHECK(!shard.compute.present() ||
              (shard.compute.numel() == n && (shard.compute.dtype == DType::bf16 || shard.compute.dtype == DType::f16)),
          "compute copy of parameter {}", shard.param);
  }
  Tensor all{0, DType::f32, {elements}}, narrow{0, DType::bf16, {narrow_elements}};
  OpScope op(s, "adamw", {all, narrow, all, all}, {all, all, all, all}, 16.0 * static_cast<double>(elements));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::adamw(s, scalars, shards, options);
  if (!scalars->finite) return;
  const AdamWCoefficients k = adamw_coefficients(*scalars, options);
  for_each_shard_block(s, shards, [=](int64_t, const Shard& shard, int64_t begin, int64_t end) {
    if (!shard.compute.present())
      update<void>(shard, begin, end, k);
    else if (shard.compute.dtype == DType::bf16)
      update<bf16>(shard, begin, end, k);
    else
      update<f16>(shard, begin, end, k);
  });
}

}  // namespace chiron
