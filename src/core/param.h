#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace chiron {

using Unit = int;   ///< 0 embedding, 1..L blocks, L+1 head and loss
using Param = int;  ///< index into Model::params()
inline constexpr Param kNoParam = -1;

/// Whether a gradient replaces what its buffer holds or is added to it. ParamStore says which is due: the first use in
/// a step overwrites, so that nothing is ever zeroed.
enum class Accum : uint8_t { overwrite, add };

/// In which form a weight is asked for.
enum class Form : uint8_t { master, compute, fp8, transposed };

/// A run of rows of a stored weight and where it lies on disk, in Hugging Face's names and layout. q, k and v are three
/// pieces of one stored weight. Under tensor parallelism a piece is what this rank has of it.
struct Piece {
  std::string name;
  int64_t rows;
  int64_t from = 0;         ///< first row within the named tensor (q, k, v of GPT-2's c_attn share one name)
  int64_t named_rows = 0;   ///< rows of the named tensor; 0: exactly `rows`
  bool transposed = false;  ///< on disk (in, out) instead of (out, in): GPT-2's Conv1D
  /// Tensor ranks, neighbours, that hold the same rows (kv heads fewer than ranks): their gradients are summed. The
  /// first of them saves the rows and counts their gradient in the norm.
  int holders = 1;
  bool mine = true;  ///< whether this rank is the first

  int64_t total_rows() const { return named_rows ? named_rows : rows; }
};

struct Init {
  enum Kind : uint8_t { zeros, ones, normal, table } kind = zeros;
  float std = 0;
  std::vector<float> values;  ///< table: a constant that the model computes
};

/// The unit of constants that every unit may read: never sharded, never narrowed, in no file.
inline constexpr Unit kEveryUnit = -1;

/// Everything the program knows about a parameter: written once, by the model.
struct ParamSpec {
  std::vector<Piece> pieces;  ///< in row order; rows beyond their sum are padding: zero, outside norm, hash and files
  Shape shape;                ///< in memory: (out, in) or (n); the first dimension may be padded
  Unit unit = 0;              ///< where it is used (for a tied weight: where its owner is)
  int tp_dim = -1;            ///< dimension that tensor parallelism cuts; -1: every tensor rank holds all of it
  int64_t first_col = 0;      ///< of the named tensors' columns, where this rank's begin (tp_dim 1)
  int64_t named_cols = 0;     ///< columns of the named tensors; 0: exactly shape[1]
  /// Each tensor rank has a summand of the gradient, though all hold the weight (norms under sequence parallelism).
  bool summand = false;
  Param tied_to = kNoParam;  ///< this one has no storage of its own
  bool trainable = true;
  bool decay = false;  ///< decoupled weight decay applies
  Init init;

  int64_t valid_rows() const {
    int64_t n = 0;
    for (const Piece& p : pieces) n += p.rows;
    return n;
  }
  int64_t valid_numel() const { return shape.rank == 2 ? valid_rows() * shape[1] : valid_rows(); }
};

/// What the optimizer updates in place: matching stretches of one parameter's state.
struct Shard {
  Param param = kNoParam;
  int64_t first_row = 0;  ///< of the parameter
  Tensor master;          ///< f32, the weight that counts
  Tensor compute;  ///< the narrow copy written in the same pass; absent when compute is f32 (then it is the master)
  Tensor grad;     ///< f32
  Tensor m, v;     ///< f32, Adam's moments
  bool decay = false;
};

}  // namespace chiron
