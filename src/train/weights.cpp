#include "train/weights.h"

#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "parallel/shard_pieces.h"

namespace chiron {
namespace {

/// FNV-1a, 64 bits: the key of a weight's random stream. Fixed for ever, since it decides what a seed means.
uint64_t hash_of(const std::string& name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (unsigned char ch : name) h = (h ^ ch) * 0x100000001b3u;
  return h;
}

/// Four normal variates from four words (Box & Muller, 1958).
std::array<float, 4> normals(const std::array<uint32_t, 4>& w) {
  std::array<float, 4> out;
  for (size_t i = 0; i < 4; i += 2) {
    float radius = std::sqrt(-2.0f * std::log(uniform_open(w[i])));
    float angle = 2.0f * std::numbers::pi_v<float> * uniform_open(w[i + 1]);
    out[i] = radius * std::cos(angle);
    out[i + 1] = radius * std::sin(angle);
  }
  return out;
}

/// Elements [0, n) of a row-major stretch that starts at element `first` of the named tensor.
void draw(float* to, int64_t n, int64_t first, uint64_t key, float std) {
  for (int64_t i = 0; i < n;) {
    const auto group = static_cast<uint64_t>(first + i) / 4;
    auto four = normals(philox({static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), 0, 0},
                               {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}));
    for (auto lane = static_cast<size_t>((first + i) % 4); lane < 4 && i < n; ++lane, ++i) to[i] = four[lane] * std;
  }
}

/// Of the tensors that a parameter's pieces are part of.
int64_t named_cols(const ParamSpec& spec) {
  if (spec.shape.rank == 1) return 1;
  return spec.named_cols ? spec.named_cols : spec.shape[1];
}

/// The part of a named tensor, as it lies on disk, that `rows` rows from `row` of a piece are.
StatePart part_of(const std::string& prefix, const Piece& piece, const ParamSpec& spec, int64_t row, Tensor data) {
  const int64_t rows = data.shape[0], first = piece.from + row, total = piece.total_rows();
  const int64_t cols = spec.shape[1], first_col = spec.first_col, total_cols = named_cols(spec);
  StatePart part{.name = prefix + piece.name, .data = data, .transposed = piece.transposed, .part = {}, .global = {}};
  if (spec.shape.rank == 1) {
    part.data = Rows(data.reshape({1, rows}));
    part.part = {{first}, {rows}};
    part.global = {total};
  } else if (piece.transposed) {
    part.part = {{first_col, first}, {cols, rows}};
    part.global = {total_cols, total};
  } else {
    part.part = {{first, first_col}, {rows, cols}};
    part.global = {total, total_cols};
  }
  return part;
}

template <class Pick>
void add_parts(std::vector<StatePart>& parts, ParamStore& params, Which which, const std::string& prefix, Pick&& pick) {
  for (const Shard& shard : params.owned()) {
    Tensor data = pick(shard);
    if (!data.present()) continue;
    const ParamSpec& spec = params.specs()[static_cast<size_t>(shard.param)];
    for_each_piece(spec, shard, [&](const Piece& piece, int64_t row, int64_t at, int64_t rows) {
      if (which == Which::held || (piece.mine && params.saves(shard.param)))
        parts.push_back(part_of(prefix, piece, spec, row, data.slice(at, at + rows)));
    });
  }
}

}  // namespace

void load_constants(Stream& s, ParamStore& params) {
  for (Param p = 0; p < static_cast<Param>(params.specs().size()); ++p) {
    const ParamSpec& spec = params.specs()[static_cast<size_t>(p)];
    if (spec.init.kind != Init::table) continue;
    const View at = params.weight(p, Form::master);
    s.upload({at.at, at.dtype, at.shape}, spec.init.values.data());
  }
}

void initialize(Stream& s, ParamStore& params, uint64_t seed) {
  load_constants(s, params);
  const Staging staging(s);
  Stream host = s.host();
  for (const Shard& shard : params.owned()) {
    const ParamSpec& spec = params.specs()[static_cast<size_t>(shard.param)];
    const int64_t cols = spec.shape.rank == 2 ? spec.shape[1] : 1, total_cols = named_cols(spec);
    for_each_piece(spec, shard, [&](const Piece& piece, int64_t row, int64_t at, int64_t rows) {
      staging.write(shard.master.slice(at, at + rows), [&](Tensor block, int64_t from) {
        auto* to = block.data<float>();
        const int64_t first = piece.from + row + from;
        if (spec.init.kind == Init::normal) {
          const uint64_t key = hash_of(piece.name) ^ seed;
          host.parallel(block.numel() / cols, (1 << 14) / cols, [=, &spec](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r)
              draw(to + r * cols, cols, (first + r) * total_cols + spec.first_col, key, spec.init.std);
          });
        } else {
          std::fill(to, to + block.numel(), spec.init.kind == Init::ones ? 1.0f : 0.0f);
        }
      });
    });
  }
  params.refresh(s);
}

bool weights_are_finite(const Staging& staging, ParamStore& params) {
  // A sum of x * 0 is 0 unless some x is not finite, and needs no branch.
  float zero = 0;
  for (const Shard& shard : params.owned())
    staging.read(shard.master, [&](View block, int64_t) {
      const auto* w = block.data<float>();
      for (int64_t i = 0; i < block.numel(); ++i) zero += w[i] * 0.0f;
    });
  return zero == 0;
}

std::vector<StatePart> weight_parts(ParamStore& params, Which which) {
  std::vector<StatePart> parts;
  add_parts(parts, params, which, "", [](const Shard& shard) { return shard.master; });
  return parts;
}

std::vector<StatePart> moment_parts(ParamStore& params, Which which) {
  std::vector<StatePart> parts;
  add_parts(parts, params, which, "exp_avg.", [](const Shard& shard) { return shard.m; });
  add_parts(parts, params, which, "exp_avg_sq.", [](const Shard& shard) { return shard.v; });
  return parts;
}

std::vector<StatePart> gradient_parts(ParamStore& params, Which which) {
  std::vector<StatePart> parts;
  add_parts(parts, params, which, "", [](const Shard& shard) { return shard.grad; });
  return parts;
}

}  // namespace chiron
