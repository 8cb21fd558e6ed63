#pragma once

#include <vector>

#include "core/stack.h"

namespace chiron {

/// Keys and values of the tokens generated so far, for every block: (sequences, capacity, kv_heads * head_dim) each, in
/// one allocation made when generation starts.
class KvCache {
 public:
  KvCache(Device device, DType dtype, int blocks, int64_t sequences, int64_t capacity, int64_t kv_width)
      : stack_(device, 2 * blocks * (padded(sequences * capacity * kv_width * size_of(dtype)))),
        sequences_(sequences),
        capacity_(capacity) {
    for (int i = 0; i < 2 * blocks; ++i) rows_.push_back(stack_.push(dtype, {sequences * capacity, kv_width}));
  }

  Tensor keys(int block) const { return rows_[static_cast<size_t>(2 * block)]; }
  Tensor values(int block) const { return rows_[static_cast<size_t>(2 * block + 1)]; }
  int64_t capacity() const { return capacity_; }
  int64_t sequences() const { return sequences_; }
  /// Tokens that every block holds; the next ones go behind them.
  int64_t length() const { return length_; }
  void advance(int64_t tokens) { length_ += tokens; }
  void truncate(int64_t length) { length_ = length; }

 private:
  static int64_t padded(int64_t bytes) { return (bytes + Stack::kAlign - 1) / Stack::kAlign * Stack::kAlign; }
  Stack stack_;
  std::vector<Tensor> rows_;
  int64_t sequences_, capacity_, length_ = 0;
};

}  // namespace chiron
