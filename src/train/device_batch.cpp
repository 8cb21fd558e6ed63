#include "train/device_batch.h"

#include <cstring>

#include "data/loader.h"

namespace chiron {
namespace {

View view_of(const std::vector<int32_t>& values) {
  return {reinterpret_cast<uintptr_t>(values.data()), DType::i32, {static_cast<int64_t>(values.size())}};
}

Batch view_of(const HostBatch& batch) {
  return {.sequences = batch.sequences,
          .length = batch.length,
          .tokens = {view_of(batch.tokens), view_of(batch.token_order)},
          .positions = {view_of(batch.positions), view_of(batch.position_order)},
          .labels = view_of(batch.labels),
          .starts = batch.starts.empty() ? View{} : view_of(batch.starts),
          .index = view_of(batch.index)};
}

}  // namespace

DeviceBatches::DeviceBatches(Device device, const LoaderOptions& options) {
  batches_.resize(static_cast<size_t>(options.micros));
  if (device.kind == DeviceKind::cpu) return;
  auto lay_out = [&](Stack& stack) {
    for (Batch& batch : batches_)
      batch = push_batch(stack, options.sequences, options.rank_length(), options.document_mask);
    return stack.peak();
  };
  Stack dry = Stack::dry();
  memory_.emplace(device, lay_out(dry));
  pinned_.emplace(device, lay_out(*memory_));
}

std::span<const Batch> DeviceBatches::upload(Stream& s, std::span<const HostBatch> micros) {
  CHECK(micros.size() <= batches_.size());
  const std::span<const Batch> batches(batches_.data(), micros.size());
  if (!memory_) {
    for (size_t m = 0; m < micros.size(); ++m) batches_[m] = view_of(micros[m]);
    return batches;
  }
  s.sync();
  const uintptr_t base = batches.front().tokens.ids.at;
  uintptr_t end = base;
  for (size_t m = 0; m < micros.size(); ++m) {
    CHECK(batches[m].sequences == micros[m].sequences && batches[m].length == micros[m].length);
    for_each_array(batches[m], view_of(micros[m]), [&](View to, View from) {
      std::memcpy(static_cast<std::byte*>(pinned_->data()) + (to.at - base), reinterpret_cast<const void*>(from.at),
                  static_cast<size_t>(from.bytes()));
      end = to.at + static_cast<uintptr_t>(to.bytes());
    });
  }
  s.upload({base, DType::u8, {static_cast<int64_t>(end - base)}}, pinned_->data());
  return batches;
}

Batch push_batch(Stack& stack, int64_t sequences, int64_t length, bool document_mask) {
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
