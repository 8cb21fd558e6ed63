#pragma once

#include <span>
#include <vector>

#include "comm/mesh.h"
#include "nn/kv_cache.h"
#include "train/saved_model.h"
#include "train/scalars.h"
#include "train/step.h"

namespace chiron {

/// Runs a model forward, with or without a cache. Memory grows to what the longest call so far needed.
class Inference {
 public:
  /// `model` outlives this. `capacity` > 0: calls share a cache of so many tokens.
  Inference(Stream& s, const SavedModel& model, DType compute, int64_t capacity = 0);

  /// Logits (f32) of the tokens that follow those in the cache; of the last one only, or of all.
  /// Returns rows of config().vocab_size values, valid until the next call.
  enum class Rows : uint8_t { last, all };
  std::span<const float> logits(std::span<const int32_t> tokens, Rows rows);

  int64_t length() const { return cache_ ? cache_->length() : 0; }
  /// Forgets the cache's tokens.
  void clear();

 private:
  void run(Stream& s, Stacks& stacks, std::span<const int32_t> tokens, Rows rows);

  Stream& s_;
  const SavedModel& model_;
  DType compute_;
  Mesh mesh_ = Mesh::single();
  Scalars scalars_;
  std::unique_ptr<KvCache> cache_;
  Stacks stacks_ = Stacks::dry();
  std::vector<int32_t> positions_;
  std::vector<float> logits_;
};

}  // namespace chiron
