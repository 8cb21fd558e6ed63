#pragma once

#include <memory>
#include <vector>

#include "parallel/store.h"
#include "train/saved_model.h"
#include "train/weights.h"

namespace chiron::tests {

/// A small model of a family with some of everything; no weight is zero or one.
inline ModelConfig small_config(Family family) {
  ModelConfig c{.family = family, .num_layers = 2, .d_model = 24, .num_heads = 4, .vocab_size = 67, .max_seq_len = 40};
  c.num_kv_heads = family == Family::llama ? 2 : 0;
  c.tie_embeddings = family == Family::gpt2;
  c.norm_eps = family == Family::llama ? 1e-6 : 1e-5;
  c.init_std = 0.2;
  resolve(c);
  return c;
}

/// As open_model() gives them: a model with drawn weights, biases and norms too.
inline SavedModel drawn_model(Stream& s, const ModelConfig& config, uint64_t seed = 1) {
  SavedModel m;
  m.dir = "drawn";
  m.model = make_model({.config = config});
  m.params = make_store(s, m.model->params(), {.kind = StateKind::weights});
  initialize(s, *m.params, seed);
  int k = 0;
  for (const Shard& shard : m.params->owned()) {
    if (shard.master.shape.rank != 1) continue;
    std::vector<float> values(static_cast<size_t>(shard.master.numel()));
    s.download(values.data(), shard.master);
    for (float& value : values) {
      k = (k * 37 + 11) % 101;
      value += static_cast<float>(k - 50) * 0.004f;
    }
    s.upload(shard.master, values.data());
  }
  m.params->refresh(s);
  return m;
}

/// All weights in order, without padding.
inline std::vector<float> weights_of(const SavedModel& m) {
  std::vector<float> all;
  for (const Shard& shard : m.params->owned()) {
    const int64_t n = m.params->specs()[static_cast<size_t>(shard.param)].valid_numel();
    all.insert(all.end(), shard.master.data<float>(), shard.master.data<float>() + n);
  }
  return all;
}

}  // namespace chiron::tests
