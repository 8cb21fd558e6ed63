#include "train/inference.h"

#include <algorithm>
#include <numeric>

#include "ops/cast/cast.h"

namespace chiron {
namespace {

bool fits(const Stacks& have, const Stacks& need) {
  return !have.unit.is_dry() && have.saved.front().capacity() >= need.saved.front().peak() &&
         have.unit.capacity() >= need.unit.peak() && have.temp.capacity() >= need.temp.peak();
}

}  // namespace

Inference::Inference(Stream& s, const SavedModel& model, DType compute, int64_t capacity)
    : s_(s), model_(model), compute_(compute), scalars_(s) {
  const ModelConfig& m = model.model->config();
  if (capacity > 0)
    cache_ = std::make_unique<KvCache>(s.device(), compute, static_cast<int>(m.num_layers), 1, capacity,
                                       m.num_kv_heads * m.head_dim);
}

void Inference::clear() {
  if (cache_) cache_->truncate(0);
}

std::span<const float> Inference::logits(std::span<const int32_t> tokens, Rows rows) {
  CHECK(!tokens.empty() && (!cache_ || length() + std::ssize(tokens) <= cache_->capacity()));
  positions_.resize(tokens.size());
  std::iota(positions_.begin(), positions_.end(), static_cast<int32_t>(length()));
  Stacks need = Stacks::dry();
  Stream dry = Stream::dry_like(s_);
  run(dry, need, tokens, rows);
  if (!fits(stacks_, need)) stacks_ = Stacks::like(need, s_.device());
  run(s_, stacks_, tokens, rows);
  if (cache_) cache_->advance(std::ssize(tokens));
  return logits_;
}

void Inference::run(Stream& s, Stacks& stacks, std::span<const int32_t> tokens, Rows rows) {
  Stack& saved = stacks.saved.front();
  Ctx c{.s = s,
        .saved = saved,
        .unit = stacks.unit,
        .temp = stacks.temp,
        .tp = mesh_.group(Axis::tp),
        .cp = mesh_.group(Axis::cp),
        .params = *model_.params,
        .scalars = scalars_.device(),
        .compute = compute_,
        .mode = Mode::evaluate,
        .cache = cache_.get()};
  const Model& model = *model_.model;
  Scope keep(saved), temp(stacks.temp);
  const int64_t n = std::ssize(tokens);
  Tensor ids = stacks.temp.push(DType::i32, {n}), positions = stacks.temp.push(DType::i32, {n});
  s.upload(ids, tokens.data());
  s.upload(positions, positions_.data());
  const Batch batch{.sequences = 1,
                    .length = n,
                    .tokens = {ids, {}},
                    .positions = {positions, {}},
                    .labels = {},
                    .starts = {},
                    .index = {}};
  View x = forward_units(c, model, batch, {0, model.units()});
  if (rows == Rows::last) x = x.slice(n - 1, n);
  c.at = model.head();
  Tensor padded = c.scratch({x.rows(), model.padded_vocab()});
  c.params.use(s, c.at);
  model.logits(c, padded, x);
  c.params.done(s, c.at);
  Tensor wide = stacks.temp.push(DType::f32, padded.shape);
  cast(s, wide, padded);
  if (s.dry()) return;
  logits_.resize(static_cast<size_t>(wide.numel()));
  s.download(logits_.data(), wide);
  // Rows move up over the padding of those before them.
  const int64_t vocab = model.config().vocab_size;
  for (int64_t r = 1; r < x.rows(); ++r)
    std::copy_n(logits_.begin() + r * wide.cols(), vocab, logits_.begin() + r * vocab);
  logits_.resize(static_cast<size_t>(x.rows() * vocab));
}

}  // namespace chiron
