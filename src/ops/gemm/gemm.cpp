#include "ops/gemm/gemm.h"

#include "ops/gemm/gemm_gpu.h"
#include "ops/gemm/multiply.h"

namespace chiron {

void gemm(Stream& s, Rows c, Accum accum, Rows a, Op op_a, Rows b, Op op_b, Stack& temp) {
  check_product(c, a, op_a, b, op_b);
  Scope scope(temp);
  const Product p{c, a, op_a, b, op_b, {}, accum == Accum::add ? c : Rows{}};
  const Tensor scratch = s.on_gpu() ? push_product_scratch(s, p, temp) : Tensor{};
  const Panels panels = s.on_gpu() ? Panels{} : push_panels(temp, c, a, op_a, b, op_b);
  OpScope op(s, "gemm", {c}, {a, b},
             2.0 * static_cast<double>(c.rows) * static_cast<double>(c.cols) * static_cast<double>(depth_of(a, op_a)));
  if (!op) return;
  if constexpr (gpu::kBuilt)
    if (s.on_gpu()) return gpu::product(s, p, scratch);
  multiply(s, c, accum, a, op_a, b, op_b, panels);
}

}  // namespace chiron
