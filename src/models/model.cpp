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

/// Makes of pieces of the whole model what this tensor rank has of them.
void Model::cut_rows(std::vector<Piece>& pieces, bool split) const {
  for (Piece& p : pieces) {
    const int holders = split ? p.holders : setup_.tp, part = setup_.tp_rank / holders, parts = setup_.tp / holders;
    p.named_rows = p.total_rows();
    p.rows /= parts;
    p.from += part * p.rows;
    p.mine = setup_.tp_rank % holders == 0;
  }
}

Param Model::matrix(Unit u, std::vector<Piece> pieces, int64_t cols, double std, Split split) {
  ParamSpec spec;
  if (split == Split::row) {
    spec.named_cols = cols;
    cols /= setup_.tp;
    spec.first_col = setup_.tp_rank * cols;
  } else {
    cut_rows(pieces, split == Split::column);
  }
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
  // A row split's bias belongs to the sum, which every rank has.
  cut_rows(pieces, split == Split::column);
  spec.shape = {rows_of(pieces)};
  spec.pieces = std::move(pieces);
  spec.unit = u;
  spec.tp_dim = split == Split::column ? 0 : -1;
  spec.summand = split == Split::none && setup_.tp > 1 && setup_.sequence_parallel;
  spec.init = {init, 0, {}};
  return add(std::move(spec));
}

Param Model::vocabulary_table(Unit u, const std::string& name, int64_t cols, double std) {
  const Param p = matrix(u, {{name, config().vocab_size}}, cols, std);
  ParamSpec& spec = params_[static_cast<size_t>(p)];
  // The last ranks may have padding only.
  const int64_t vocab = config().vocab_size, rows = padded_vocab() / setup_.tp,
                first = std::min(setup_.tp_rank * rows, vocab);
  spec.pieces = {{name, std::min(rows, vocab - first), first, vocab}};
  spec.shape[0] = rows;
  spec.tp_dim = 0;
  return p;
}

}  // namespace chiron
