#include "models/model.h"

namespace chiron {
namespace {

constexpr int64_t kVocabMultiple = 128;  // rows of the head that products like

int tp_dim_of(Split split) { return split == Split::none ? -1 : split == Split::column ? 0 : 1; }

int64_t rows_of(const std::vector<Piece>& pieces) {
  int64_t rows = 0;
  for (const Piece& p : pieces) rows += p.rows;
  return rows;
}

}  // namespace

int64_t Model::padded_vocab() const {
  int64_t multiple = kVocabMultiple * setup_.tp;
  return (config().vocab_size + multiple - 1) / multiple * multiple;
}

Param Model::matrix(Unit u, std::vector<Piece> pieces, int64_t cols, double std, Split split) {
  ParamSpec spec;
  spec.shape = {rows_of(pieces), cols};
  spec.pieces = std::move(pieces);
  spec.unit = u;
  spec.tp_dim = tp_dim_of(split);
  spec.decay = true;
  spec.init = {Init::normal, static_cast<float>(std), {}};
  return add(std::move(spec));
}

Param Model::vector(Unit u, std::vector<Piece> pieces, Init::Kind init, Split split) {
  ParamSpec spec;
  spec.shape = {rows_of(pieces)};
  spec.pieces = std::move(pieces);
  spec.unit = u;
  // A row split's bias belongs to the sum, which every rank has.
  spec.tp_dim = split == Split::column ? 0 : -1;
  spec.init = {init, 0, {}};
  return add(std::move(spec));
}

}  // namespace chiron
