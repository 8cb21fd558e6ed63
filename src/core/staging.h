#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "core/stack.h"
#include "core/stream.h"

namespace chiron {

/// How the host reads and writes tensors of a device: block by block, through pinned memory that is used again and
/// again. Tensors in host memory are read and written where they lie. One for all of a file operation, since it takes
/// its memory when it is first needed. Not thread-safe.
class Staging {
 public:
  /// Tensors lie in host memory.
  Staging() = default;
  /// Tensors lie in the memory of the stream's device, which outlives this.
  explicit Staging(Stream& s) : s_(s.on_gpu() ? &s : nullptr) {}

  /// Calls f(View host, int64_t first) for blocks of t's rows, in order: what rows first.. hold.
  template <class F>
  void read(View t, F&& f) const {
    for_blocks(t, [&](View block, int64_t first) {
      if (!s_) return f(block, first);
      View host{room(block.bytes()), block.dtype, block.shape};
      s_->download(reinterpret_cast<void*>(host.at), block);
      f(host, first);
    });
  }
  /// Calls f(Tensor host, int64_t first) for blocks of t's rows, and puts what it writes there into t.
  template <class F>
  void write(Tensor t, F&& f) const {
    for_blocks(t, [&](View block, int64_t first) {
      Tensor host{s_ ? room(block.bytes()) : block.at, block.dtype, block.shape};
      f(host, first);
      if (!s_) return;
      s_->upload({block.at, block.dtype, block.shape}, reinterpret_cast<const void*>(host.at));
      s_->sync();  // before the memory is used again
    });
  }
  /// Points each of these at host memory with what it holds, all at once; valid until the next call.
  void hold(std::span<Rows> all) const;

 private:
  static constexpr int64_t kBlock = 32 << 20;  // bytes: long enough for full speed

  template <class F>
  void for_blocks(View t, F&& f) const {
    const int64_t rows = t.shape.rank ? t.shape[0] : 1;
    if (!s_ || t.bytes() <= kBlock) return f(t, int64_t{0});
    const int64_t most = std::max<int64_t>(1, kBlock / (t.bytes() / rows));
    for (int64_t first = 0; first < rows; first += most) f(t.slice(first, std::min(first + most, rows)), first);
  }
  /// Host memory; what was in it is lost.
  uintptr_t room(int64_t bytes) const;

  Stream* s_ = nullptr;
  mutable std::unique_ptr<HostBuffer> memory_;
};

}  // namespace chiron
