#include "train/op_recorder.h"

#include <algorithm>
#include <iterator>

namespace chiron {
namespace {

std::vector<Operand> present(std::span<const Operand> list) {
  std::vector<Operand> out;
  std::ranges::copy_if(list, std::back_inserter(out), [](const Operand& o) { return o.shape.rank > 0; });
  return out;
}

}  // namespace

int64_t PlannedOp::bytes() const {
  int64_t sum = 0;
  for (const auto* list : {&outputs, &inputs})
    for (const Operand& o : *list) sum += o.bytes();
  return sum;
}

void OpRecorder::begin(const OpInfo& info) {
  flops += info.flops;
  work.begin(info);
  PlannedOp op{.unit = unit_,
               .forward = forward_,
               .slot = {},
               .kept = false,
               .again = false,
               .name = info.name,
               .outputs = present(info.outputs),
               .inputs = present(info.inputs),
               .flops = info.flops};
  if (!slots_.empty()) {
    op.slot = slots_.back().name;
    op.kept = slots_.back().kept;
    op.again = slots_.back().again;
  }
  ops.push_back(std::move(op));
}

void OpRecorder::unit(int unit, bool forward) {
  work.unit(unit, forward);
  unit_ = unit;
  forward_ = forward;
}

void OpRecorder::slot_begin(const char* name, bool kept, bool again) { slots_.push_back({name, kept, again}); }

void OpRecorder::slot_end() { slots_.pop_back(); }

std::vector<LinearProduct> products_of(const std::vector<PlannedOp>& ops) {
  std::vector<LinearProduct> products;
  for (const PlannedOp& op : ops) {
    if (op.name != "linear" && op.name != "linear_backward_input" && op.name != "linear_backward_weight") continue;
    const Shape &c = op.outputs[0].shape, &a = op.inputs[0].shape;
    const int64_t m = c[0], n = c[1];
    const DType dtype = op.inputs[0].dtype;
    if (op.name == "linear")
      products.push_back({LinearProduct::forward, m, n, a[1], dtype});
    else if (op.name == "linear_backward_input")
      products.push_back({LinearProduct::input, m, n, a[1], dtype});
    else
      products.push_back({LinearProduct::weight, m, n, a[0], dtype});
  }
  return products;
}

}  // namespace chiron
