#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string_view>

#include "core/stream.h"

namespace chiron {

/// What of a training step is captured once and then replayed.
enum class Graphs : uint8_t { off, unit, step };
constexpr std::array<std::string_view, 3> names_of(Graphs) { return {"off", "unit", "step"}; }

/// Work of a GPU's stream, written down once and started again and again as one: the same kernels, copies and fills,
/// with the same arguments. What they read and write may change in between, where it stands may not.
class Graph {
 public:
  bool empty() const { return !handle_; }
  /// Calls `work`, which puts all that it does on `s`, and runs none of it. The first run of an op is no good here:
  /// it may allocate or load code.
  void capture(Stream& s, const std::function<void()>& work);
  /// `what` stands for the op in messages and outlives the stream.
  void launch(Stream& s, const char* what) const;

 private:
  struct Destroy {
    void operator()(gpu::GraphHandle handle) const;
  };
  std::unique_ptr<std::remove_pointer_t<gpu::GraphHandle>, Destroy> handle_;
};

}  // namespace chiron
