#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "comm/mesh.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "parallel/store.h"
#include "train/device_batch.h"
#include "train/layout.h"
#include "train/scalars.h"
#include "train/setup.h"
#include "train/step.h"
#include "train/weights.h"

namespace chiron::tests {

/// A model, its weights and a training step over synthetic tokens, in memory: of one rank, or of one of those of
/// `world`, which options.parallel lays out.
struct TinyRun {
  explicit TinyRun(const Options& o, int threads = 1, bool split_weight_gradients = false, Device device = {},
                   Communicator* world = nullptr)
      : options(o),
        pool(threads),
        s(device, pool),
        mesh(world ? Mesh(*world, mesh_sizes(options, world->size())) : Mesh::single()),
        model(make_model(model_setup(options, options.model.vocab_size, mesh))),
        held(setup_of_store(split_weight_gradients)),
        store(make_store(s, model->params(), held)),
        params(*store),
        scalars(s),
        loader(std::make_shared<SyntheticSource>(SyntheticOptions{.vocab_size = options.model.vocab_size}),
               {.sequences = options.training.batch_size,
                .length = options.training.seq_len,
                .micros = options.training.gradient_accumulation,
                .rank = mesh.index(kBatchAxes),
                .num_ranks = mesh.size(kBatchAxes),
                .context_rank = mesh.index(Axis::cp),
                .context_ranks = mesh.size(Axis::cp),
                .row_ranks = options.parallel.sequence ? mesh.size(Axis::tp) : 1,
                .document_mask = options.data.document_mask}),
        batches(device, loader.options()) {
    initialize(s, params, static_cast<uint64_t>(options.training.seed));
    TrainStep::Setup setup = step_setup(options, *model);
    setup.split_weight_gradients = split_weight_gradients;
    // Planned dry with the same code, then allocated to the byte.
    TrainStep dry(*model, params, mesh, setup, std::nullopt, scalars.device());
    Stream dry_stream = Stream::dry(device);
    Stack tokens = Stack::dry(7);
    std::vector<Batch> planned_batches;
    for (int64_t m = 0; m < options.training.gradient_accumulation; ++m)
      planned_batches.push_back(
          push_batch(tokens, options.training.batch_size, loader.options().rank_length(), options.data.document_mask));
    dry.run(dry_stream, planned_batches);
    dry.evaluate(dry_stream, planned_batches[0]);
    Stacks planned = std::move(dry).take_stacks();
    saved_bytes = planned.saved_peak();
    step =
        std::make_unique<TrainStep>(*model, params, mesh, setup, Stacks::like(planned, s.device()), scalars.device());
    step->set_poison(&s);
  }

  StepScalars run(int64_t n, float learning_rate = 1e-3f) {
    loader.fill(n, host);
    return run(host, n, learning_rate);
  }

  StepScalars run(const HostStep& data, int64_t n, float learning_rate = 1e-3f, bool update = true) {
    const auto micros = batches.upload(s, data.micros);
    StepScalars values = scalars.read(s);
    values.seed = static_cast<uint64_t>(options.training.seed);
    values.step = n;
    values.learning_rate = learning_rate;
    values.max_norm = static_cast<float>(options.training.gradient_clip_norm);
    scalars.write(s, values);
    if (update)
      step->run(s, micros);
    else
      step->gradients(s, micros);
    return scalars.read(s);
  }

  /// All weights, as bytes.
  std::vector<char> weights() {
    std::vector<char> bytes;
    for (const Shard& shard : params.owned()) {
      const size_t at = bytes.size();
      bytes.resize(at + static_cast<size_t>(shard.master.bytes()));
      s.download(bytes.data() + at, shard.master);
    }
    return bytes;
  }

  StoreSetup setup_of_store(bool split_weight_gradients) {
    StoreSetup setup = store_setup(options, *model, mesh);
    setup.split_weight_gradients |= split_weight_gradients;
    return setup;
  }

  Options options;
  ThreadPool pool;
  Stream s;
  Mesh mesh;
  std::unique_ptr<Model> model;
  StoreSetup held;
  std::unique_ptr<ParamStore> store;
  ParamStore& params;
  Scalars scalars;
  Loader loader;
  DeviceBatches batches;
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
