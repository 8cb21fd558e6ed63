#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/stack.h"

namespace chiron {

struct HostBatch;
struct LoaderOptions;

/// The micro-batches of a step as the device sees them. On the CPU they are views of the host's arrays; a GPU has
/// buffers of its own, allocated once and filled by one copy from pinned memory.
class DeviceBatches {
 public:
  /// For steps of a loader with these options, or with fewer micro-batches.
  DeviceBatches(Device device, const LoaderOptions& options);

  /// Waits for the stream, which may still read the step before. Valid until the next call, on the CPU as long as the
  /// host's arrays are.
  std::span<const Batch> upload(Stream& s, std::span<const HostBatch> micros);

 private:
  std::optional<Stack> memory_;  // GPU only
  std::optional<HostBuffer> pinned_;
  std::vector<Batch> batches_;
};

/// A batch in memory that has yet to be filled; on a dry stack for plans.
Batch push_batch(Stack& stack, int64_t sequences, int64_t length, bool document_mask);

/// Calls f(a, b) for each array of a batch and the one of another that has the same arrays.
template <class F>
void for_each_array(const Batch& a, const Batch& b, F&& f) {
  f(a.tokens.ids, b.tokens.ids);
  f(a.tokens.order, b.tokens.order);
  f(a.positions.ids, b.positions.ids);
  f(a.positions.order, b.positions.order);
  f(a.labels, b.labels);
  if (a.starts.present()) f(a.starts, b.starts);
  f(a.index, b.index);
}

}  // namespace chiron
