#pragma once

#include <nlohmann/json_fwd.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_file.h"
#include "models/config.h"
#include "nn/ctx.h"
#include "nn/linear.h"

namespace chiron {

/// What a model is built from: its config, and what training and layout add.
struct ModelSetup {
  ModelConfig config;  ///< resolved, with a vocabulary
  float label_smoothing = 0;
  int64_t loss_chunk = 0;  ///< tokens per slice of logits; 0: all
  int tp = 1;              ///< ranks of the tensor axis
  int tp_rank = 0;
  bool sequence_parallel = false;
};

/// A transformer as a sequence of units: 0 embedding, 1..L blocks, L+1 head and loss. It owns no memory and no state:
/// weights are in the ParamStore, activations in Saved.
class Model {
 public:
  virtual ~Model() = default;

  const ModelConfig& config() const { return setup_.config; }
  const ModelSetup& setup() const { return setup_; }
  /// As this tensor rank has them.
  std::span<const ParamSpec> params() const { return params_; }
  int units() const { return static_cast<int>(config().num_layers) + 2; }
  Unit head() const { return units() - 1; }
  /// What may be kept of a unit between forward and backward.
  virtual std::span<const SlotSpec> slots(Unit u) const = 0;

  /// y (T, C) <- unit u of saved.x; the head leaves y alone and adds the loss to the step's sums. Under sequence
  /// parallelism T is this tensor rank's share of the batch's tokens.
  virtual void forward(Ctx& c, Unit u, Tensor y, Saved& saved) const = 0;
  /// d (T, C): in dL/dy, out dL/dx; the head only writes it, the embedding only reads it.
  virtual void backward(Ctx& c, Unit u, Tensor d, Saved& saved) const = 0;
  /// out (T, this tensor rank's part of the padded vocabulary) <- logits of x, the last block's output.
  virtual void logits(Ctx& c, Tensor out, View x) const = 0;

  /// config.json of a Hugging Face folder.
  virtual nlohmann::json hf_config() const = 0;
  /// A tensor of such a folder that holds no weight: mask buffers, rotary tables.
  virtual bool is_buffer(std::string_view name) const = 0;

  /// Vocabulary rows in memory: a multiple of 128 for each rank of the tensor axis.
  int64_t padded_vocab() const;

 protected:
  explicit Model(const ModelSetup& setup) : setup_(setup) {}
  Param add(ParamSpec spec) {
    params_.push_back(std::move(spec));
    return static_cast<Param>(params_.size()) - 1;
  }
  /// A weight matrix (rows, cols) of one or more pieces, drawn from a normal distribution. Sizes here and below are of
  /// the whole model; of what is split this tensor rank gets its part. A piece says how many ranks hold the same of it.
  Param matrix(Unit u, std::vector<Piece> pieces, int64_t cols, double std, Split split = Split::none);
  /// A vector without weight decay: a norm's, or the bias of a split layer.
  Param vector(Unit u, std::vector<Piece> pieces, Init::Kind init, Split split = Split::none);
  /// A table (vocabulary, cols), padded in memory, whose rows are split.
  Param vocabulary_table(Unit u, const std::string& name, int64_t cols, double std);
  /// Tensor ranks that hold the same key and value heads.
  int kv_holders() const { return std::max<int>(1, setup_.tp / static_cast<int>(config().num_kv_heads)); }

  ModelSetup setup_;
  std::vector<ParamSpec> params_;

 private:
  void cut_rows(std::vector<Piece>& pieces, bool split) const;
};

/// Builds a model of the config's family.
std::unique_ptr<Model> make_model(const ModelSetup& setup);

/// The config that a Hugging Face config.json describes. DataError names the file and the key if it is missing, of the
/// wrong type, or asks for something that is not implemented.
ModelConfig config_from_hf(const JsonObject& json);

}  // namespace chiron
