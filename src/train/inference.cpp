#include "train/inference.h"

#include <algorithm>
#include <numeric>

#include "ops/cast/cast.h"

namespace chiron {
namespace {

View view_of(const std::vector<int32_t>& values) {
  return {reinterpret_cast<uintptr_t>(values.data()), DType::i32, {static_cast<int64_t>(values.size())}};
}

bool fits(const Stacks& have, const Stacks& need) {
  return !have.saved.is_dry() && have.saved.capacity() >= need.saved.peak() &&
         have.unit.capacity() >= need.unit.peak() && have.temp.capacity() >= need.temp.peak();
}

}  // namespace

Inference::Inference(Stream& s, const SavedModel& model, DType compute, int64_t capacity)
    : s_(s), model_(model), compute_(compute), scalars_(s.device()) {
  const ModelConfig& m = model.model->config();
  if (capacity > 0)
    cache_ = std::make_unique<KvCache>(s.device(), compute, static_cast<int>(m.num_layers), 1, capacity,
                                       m.num_kv_heads * m.head_dim);
}

void Inference::clear() {
  if (cache_) cache_->truncate(0);
}

std::span<const float> Inference::logits(std::span<const int32_t> tokens, Rows rows) {
  const int64_t n = static_cast<int64_t>(tokens.size());
  CHECK(n > 0 && (!cache_ || length() + n <= cache_->capacity()));
  ids_.assign(tokens.begin(), tokens.end());
  positions_.resize(tokens.size());
  std::iota(positions_.begin(), positions_.end(), static_cast<int32_t>(length()));
  const Batch batch{.sequences = 1,
                    .length = n,
                    .tokens = {view_of(ids_), {}},
                    .positions = {view_of(positions_), {}},
                    .labels = {},
                    .starts = {},
                    .index = {}};
  logits_.resize(static_cast<size_t>((rows == Rows::all ? n : 1) * model_.model->config().vocab_size));

  Stacks need = Stacks::dry();
  Stream dry = Stream::dry(s_.device());
  run(dry, need, batch, rows);
  if (!fits(stacks_, need)) stacks_ = Stacks::like(need, s_.device());
  run(s_, stacks_, batch, rows);
  if (cache_) cache_->advance(n);
  return logits_;
}

void Inference::run(Stream& s, Stacks& stacks, const Batch& batch, Rows rows) {
  Ctx c{.s = s,
        .saved = stacks.saved,
        .unit = stacks.unit,
        .temp = stacks.temp,
        .tp = tp_,
        .params = *model_.params,
        .scalars = scalars_.device(),
        .compute = compute_,
        .mode = Mode::evaluate,
        .cache = cache_.get()};
  const Model& model = *model_.model;
  Scope saved(stacks.saved), temp(stacks.temp);
  View x = forward_blocks(c, model, batch);
  if (rows == Rows::last) x = x.slice(batch.rows() - 1, batch.rows());
  c.at = model.head();
  Tensor padded = c.scratch({x.rows(), model.padded_vocab()});
  c.params.use(s, c.at);
  model.logits(c, padded, x);
  c.params.done(s, c.at);
  Tensor wide = stacks.temp.push(DType::f32, padded.shape);
  cast(s, wide, padded);
  s.sync();
  if (s.dry()) return;
  const int64_t vocab = model.config().vocab_size;
  for (int64_t r = 0; r < x.rows(); ++r)
    std::copy_n(wide.data<float>() + r * padded.cols(), vocab, logits_.data() + r * vocab);
}

}  // namespace chiron
