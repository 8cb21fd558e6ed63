#include "ops/cast/cast.h"

#include <algorithm>

#include "ops/cast/cast_gpu.h"
#include "ops/cast/convert.h"

namespace chiron {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements per range

}  // namespace

void convert(Stream& s, Rows to, Rows from) {
  by_float(from.dtype, [&]<class From>() {
    by_float(to.dtype, [&]<class To>() {
      const From* in = from.data<From>();
      To* out = to.data<To>();
      const int64_t cols = to.cols, ld_in = from.ld, ld_out = to.ld;
      if (to.contiguous() && from.contiguous()) {
        s.parallel(to.rows * cols, kGrain,
                   [=](int64_t begin, int64_t end) { convert_row(out + begin, in + begin, end - begin); });
        return;
      }
      s.parallel(to.rows, kGrain / std::max<int64_t>(cols, 1), [=](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) convert_row(out + r * ld_out, in + r * ld_in, cols);
      });
    });
  });
}

void cast(Stream& s, Tensor to, View from) {
  CHECK(to.shape == from.shape, "cast of {} {} to {} {}", name_of(from.dtype), from.shape.str(), name_of(to.dtype),
        to.shape.str());
  OpScope op(s, "cast", {to}, {from}, 0);
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::cast(s, to, from);
  convert(s, to, from);
}

}  // namespace chiron
