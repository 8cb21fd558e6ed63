#pragma once

#include <vector>

#include "models/model.h"
#include "nn/embedding.h"
#include "nn/head.h"

namespace chiron {

/// A model of one kind of block: dispatches units. A Block has
///   using Norm = ...;   void forward(Ctx&, Tensor y, Saved&) const;   void backward(Ctx&, Tensor d, Saved&) const;
template <class Block>
class Decoder : public Model {
 public:
  std::span<const SlotSpec> slots(Unit u) const override {
    if (u == 0) return {};
    return u == head() ? head_slots_ : block_slots_;
  }

  void forward(Ctx& c, Unit u, Tensor y, Saved& saved) const override {
    if (u == 0)
      embedding_.forward(c, y, *saved.batch);
    else if (u == head())
      head_.forward(c, saved);
    else
      block(u).forward(c, y, saved);
  }

  void backward(Ctx& c, Unit u, Tensor d, Saved& saved) const override {
    if (u == 0)
      embedding_.backward(c, d, *saved.batch);
    else if (u == head())
      head_.backward(c, d, saved);
    else
      block(u).backward(c, d, saved);
  }

  void logits(Ctx& c, Tensor out, View x) const override { head_.logits(c, out, x); }

 protected:
  explicit Decoder(const ModelSetup& setup) : Model(setup) {
    head_.vocab = config().vocab_size;
    head_.label_smoothing = setup.label_smoothing;
    head_.chunk = setup.loss_chunk;
    head_slots_ = {{"dx", config().d_model}};
  }

  const Block& block(Unit u) const { return blocks_[static_cast<size_t>(u - 1)]; }

  /// The embedding's weight.
  void make_token_table(const std::string& name) {
    embedding_.tokens = vocabulary_table(0, name, config().d_model, config().init_std);
  }
  /// The head's weight: the embedding's, or one of its own.
  void make_head_weight(const std::string& name) {
    if (config().tie_embeddings) {
      ParamSpec spec = params_[static_cast<size_t>(embedding_.tokens)];
      spec.pieces.clear();
      spec.unit = head();
      spec.tied_to = embedding_.tokens;
      head_.w = add(spec);
    } else {
      head_.w = vocabulary_table(head(), name, config().d_model, config().init_std);
    }
  }

  Embedding embedding_;
  std::vector<Block> blocks_;
  Head<typename Block::Norm> head_;
  std::vector<SlotSpec> block_slots_, head_slots_;
};

}  // namespace chiron
