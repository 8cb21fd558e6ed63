#include "core/stream.h"

#include <cstring>

namespace chiron {

CpuLevel cpu_level() {
#if defined(__x86_64__) && !defined(CHIRON_BASELINE_ONLY)
  static const CpuLevel level = __builtin_cpu_supports("x86-64-v4")   ? CpuLevel::avx512
                                : __builtin_cpu_supports("x86-64-v3") ? CpuLevel::avx2
                                                                      : CpuLevel::baseline;
  return level;
#else
  return CpuLevel::baseline;
#endif
}

void Stream::copy(Tensor to, View from) {
  CHECK(to.dtype == from.dtype && to.numel() == from.numel(), "copy of {} {} to {} {}", name_of(from.dtype),
        from.shape.str(), name_of(to.dtype), to.shape.str());
  OpScope op(*this, "copy", {to}, {from}, 0);
  if (!op) return;
  constexpr int64_t kGrain = 1 << 20;
  parallel(from.bytes(), kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(reinterpret_cast<char*>(to.at) + begin, reinterpret_cast<const char*>(from.at) + begin,
                static_cast<size_t>(end - begin));
  });
}

void Stream::fill_zero(Tensor t) {
  OpScope op(*this, "fill_zero", {t}, {}, 0);
  if (!op) return;
  constexpr int64_t kGrain = 1 << 20;
  parallel(t.bytes(), kGrain, [&](int64_t begin, int64_t end) {
    std::memset(reinterpret_cast<char*>(t.at) + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace chiron
