#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "parallel/replicated.h"
#include "train/device_batch.h"
#include "train/scalars.h"
#include "train/setup.h"
#include "train/step.h"
#include "train/weights.h"

namespace chiron::tests {

/// A model, its weights and a training step over synthetic tokens, in memory.
struct TinyRun {
  explicit TinyRun(const Options& o, int threads = 1, bool split_weight_gradients = false)
      : options(o),
        pool(threads),
        s({}, pool),
        model(make_model(model_setup(options, options.model.vocab_size))),
        params(s, model->params(), compute_dtype(options), StateKind::training),
        scalars(s.device()),
        loader(std::make_shared<SyntheticSource>(SyntheticOptions{.vocab_size = options.model.vocab_size}),
               {.sequences = options.training.batch_size,
                .length = options.training.seq_len,
                .micros = options.training.gradient_accumulation,
                .document_mask = options.data.document_mask}) {
    initialize(s, params, static_cast<uint64_t>(options.training.seed));
    TrainStep::Setup setup = step_setup(options, *model);
    setup.split_weight_gradients = split_weight_gradients;
    // Planned dry with the same code, then allocated to the byte.
    TrainStep dry(*model, params, tp, setup, Stacks::dry(), scalars.device());
    Stream dry_stream = Stream::dry({});
    Stack tokens = Stack::dry(7);
    std::vector<Batch> batches;
    for (int64_t m = 0; m < options.training.gradient_accumulation; ++m)
      batches.push_back(
          dry_batch(tokens, options.training.batch_size, options.training.seq_len, options.data.document_mask));
    dry.run(dry_stream, batches);
    dry.evaluate(dry_stream, batches[0]);
    Stacks planned = std::move(dry).take_stacks();
    saved_bytes = planned.saved.peak();
    step = std::make_unique<TrainStep>(*model, params, tp, setup, Stacks::like(planned, s.device()), scalars.device());
    step->set_poison(&s);
  }

  StepScalars run(int64_t n, float learning_rate = 1e-3f) {
    loader.fill(n, host);
    return run(host, n, learning_rate);
  }

  StepScalars run(const HostStep& data, int64_t n, float learning_rate = 1e-3f) {
    std::vector<Batch> batches;
    for (const HostBatch& micro : data.micros) batches.push_back(view_of(micro));
    StepScalars values = scalars.read(s);
    values.seed = static_cast<uint64_t>(options.training.seed);
    values.step = n;
    values.learning_rate = learning_rate;
    values.max_norm = static_cast<float>(options.training.gradient_clip_norm);
    scalars.write(s, values);
    step->run(s, batches);
    return scalars.read(s);
  }

  /// All weights, as bytes.
  std::vector<char> weights() {
    std::vector<char> bytes;
    for (const Shard& shard : params.owned()) {
      auto p = reinterpret_cast<const char*>(shard.master.at);
      bytes.insert(bytes.end(), p, p + shard.master.bytes());
    }
    return bytes;
  }

  Options options;
  ThreadPool pool;
  Stream s;
  std::unique_ptr<Model> model;
  Replicated params;
  SelfCommunicator tp;
  Scalars scalars;
  Loader loader;
  HostStep host;
  std::unique_ptr<TrainStep> step;
  int64_t saved_bytes = 0;
};

/// A small model of a family, with everything in it that a family has.
inline Options tiny_options(Family family) {
  Options o;
  o.model = {.family = family, .num_layers = 3, .d_model = 48, .num_heads = 4, .vocab_size = 67};
  o.model.num_kv_heads = family == Family::llama ? 2 : 0;
  o.model.tie_embeddings = family == Family::gpt2;
  o.model.attention_bias = o.model.mlp_bias = family == Family::gpt2;
  o.training.batch_size = 3;
  o.training.seq_len = 37;
  o.training.gradient_accumulation = 2;
  o.data.synthetic = true;
  resolve(o.model);
  return o;
}

}  // namespace chiron::tests
