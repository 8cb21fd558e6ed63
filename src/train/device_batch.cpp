#include "train/device_batch.h"

#include "data/loader.h"

namespace chiron {
namespace {

View view_of(const std::vector<int32_t>& values) {
  return {reinterpret_cast<uintptr_t>(values.data()), DType::i32, {static_cast<int64_t>(values.size())}};
}

}  // namespace

Batch view_of(const HostBatch& batch) {
  return {.sequences = batch.sequences,
          .length = batch.length,
          .tokens = {view_of(batch.tokens), view_of(batch.token_order)},
          .positions = {view_of(batch.positions), view_of(batch.position_order)},
          .labels = view_of(batch.labels),
          .starts = batch.starts.empty() ? View{} : view_of(batch.starts),
          .index = view_of(batch.index)};
}

Batch dry_batch(Stack& stack, int64_t sequences, int64_t length, bool document_mask) {
  auto rows = [&] { return View(stack.push(DType::i32, {sequences * length})); };
  return {.sequences = sequences,
          .length = length,
          .tokens = {rows(), rows()},
          .positions = {rows(), rows()},
          .labels = rows(),
          .starts = document_mask ? rows() : View{},
          .index = rows()};
}

}  // namespace chiron
