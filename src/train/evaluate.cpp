#include "train/evaluate.h"

#include <cmath>
#include <numbers>

namespace chiron {

double Evaluation::perplexity() const { return std::exp(loss()); }

double Evaluation::bits_per_byte(const TokenSource& source) const {
  if (source.text_bytes() == 0) return 0;
  const double tokens_per_byte = static_cast<double>(source.num_tokens()) / static_cast<double>(source.text_bytes());
  return loss() / std::numbers::ln2 * tokens_per_byte;
}

std::optional<Evaluation> evaluate(Stream& s, TrainStep& step, Scalars& scalars, DeviceBatches& batches,
                                   const Loader& loader, int64_t steps, Mesh& mesh, const std::function<bool()>& stop) {
  const StepScalars before = scalars.read(s);
  const int64_t all = loader.num_steps(), count = steps > 0 && steps < all ? steps : all;
  Evaluation result;
  HostStep host;
  bool stopped = false;
  for (int64_t n = 0; n < count && !(stopped = stop && stop()); ++n) {
    loader.fill(n, host);
    for (const HostBatch& micro : host.micros) {
      StepScalars zero = before;
      zero.tokens = 0;
      zero.sums[1] = 0;
      scalars.write(s, zero);
      step.evaluate(s, batches.upload(s, {&micro, 1}).front());
      // Batch by batch, in double: a long sum of float32 would lose digits.
      const StepScalars after = scalars.read(s);
      if (step.counts_loss()) result.loss_sum += static_cast<double>(after.sums[1]);
      result.tokens += after.tokens;
    }
  }
  scalars.write(s, before);
  if (stopped) return std::nullopt;
  if (mesh.size(Axis::all) > 1) {
    double sums[2] = {result.loss_sum, static_cast<double>(result.tokens)};
    Stream host = s.host();
    mesh.group(Axis::all).all_reduce(host, {reinterpret_cast<uintptr_t>(sums), DType::f64, {2}}, Reduce::sum);
    result = {sums[0], static_cast<int64_t>(sums[1])};
  }
  return result;
}

Evaluation evaluate_model(Stream& s, const SavedModel& m, const Loader& loader) {
  Mesh mesh = Mesh::single();
  Scalars scalars(s);
  DeviceBatches batches(s.device(), loader.options());
  auto make = [&](std::optional<Stacks> stacks) {
    TrainStep::Setup setup{.policy = make_policy({}, *m.model)};
    return TrainStep(*m.model, *m.params, mesh, setup, std::move(stacks), scalars.device());
  };
  TrainStep planned = make(std::nullopt);
  Stream dry = Stream::dry_like(s);
  Stack tokens = Stack::dry(7);
  planned.evaluate(dry, push_batch(tokens, loader.options().sequences, loader.options().rank_length(),
                                   loader.options().document_mask));
  TrainStep step = make(Stacks::like(std::move(planned).take_stacks(), s.device()));
  return *evaluate(s, step, scalars, batches, loader, 0, mesh);
}

}  // namespace chiron
