#include "train/memory.h"

#include <fmt/ranges.h>

#include <functional>

#include "base/host_memory.h"
#include "base/numbers.h"
#include "train/setup.h"

namespace chiron {
namespace {

/// A change of options that gives the same numbers, but for the order of sums, with less memory.
struct Remedy {
  std::string text;  ///< as it would be written down
  std::function<void(Options&)> apply;
};

}  // namespace

std::string memory_advice(const Plan& plan, const Options& options, const Model& model, Device device, int64_t free,
                          const Mesh& mesh) {
  const TrainingOptions& t = options.training;
  std::vector<Remedy> cheap;
  if (plan.snapshot > 0) cheap.push_back({"checkpoint.async: false", [](Options& o) { o.checkpoint.async = false; }});
  constexpr int64_t kRows = 1024;  // of logits: enough to keep a device busy
  if (t.batch_size * t.seq_len > kRows && (t.loss_chunk == 0 || t.loss_chunk > kRows))
    cheap.push_back({fmt::format("training.loss_chunk: {}", kRows), [](Options& o) { o.training.loss_chunk = kRows; }});
  if (options.activations.kind != Activations::Kind::keep_none)
    cheap.push_back({"activations: keep_none", [](Options& o) { o.activations = {Activations::Kind::keep_none}; }});
  std::string found;
  auto fits = [&](const std::vector<Remedy>& together) {
    Options changed = options;
    std::vector<std::string> texts;
    for (const Remedy& remedy : together) {
      remedy.apply(changed);
      texts.push_back(remedy.text);
    }
    int64_t need = 0;
    try {
      const auto changed_model = make_model(model_setup(changed, model.config().vocab_size, mesh));
      need = make_plan(changed, *changed_model, device, nullptr, mesh).asked();
    } catch (const ConfigError&) {
      return false;  // not with this layout
    }
    if (need > free) return false;
    found += fmt::format("\n  {} (needs {})", fmt::join(texts, ", "), bytes_text(need));
    return true;
  };
  for (const Remedy& remedy : cheap) fits({remedy});
  if (found.empty() && cheap.size() > 1) fits(cheap);
  // Cuts of the batch, the largest that fits; with the others only if nothing else is enough.
  for (const std::vector<Remedy>& with : {std::vector<Remedy>{}, cheap}) {
    if (!with.empty() && !found.empty()) break;
    for (int64_t parts = 2; parts <= t.batch_size; ++parts) {
      if (t.batch_size % parts != 0) continue;
      std::vector<Remedy> together = with;
      together.push_back({fmt::format("training.batch_size: {}, training.gradient_accumulation: {}",
                                      t.batch_size / parts, t.gradient_accumulation * parts),
                          [parts](Options& o) {
                            o.training.batch_size /= parts;
                            o.training.gradient_accumulation *= parts;
                          }});
      if (fits(together)) break;
    }
  }
  const std::string need = fmt::format(
      "the run needs {} by plan (weights {}, gradients {}, optimizer {}, activations {}, temporary {}, logits {}, "
      "snapshot for saving {})",
      bytes_text(plan.asked()), bytes_text(plan.state.weights), bytes_text(plan.state.gradients),
      bytes_text(plan.state.optimizer), bytes_text(plan.activations), bytes_text(plan.temporary),
      bytes_text(plan.logits), bytes_text(plan.snapshot));
  if (found.empty())
    return need + "; no smaller batch, training.loss_chunk or activations: keep_none would fit: take a smaller model";
  return need + "; any of these would fit:" + found;
}

int64_t free_memory(Device device) {
  if constexpr (gpu::kBuilt)
    if (device.kind == DeviceKind::gpu) return gpu::free_memory(device.index);
  return host_memory().most();
}

void check_memory(const Plan& plan, const Options& options, const Model& model, Device device, Log& log,
                  const Mesh& mesh, int ranks_per_node) {
  const int64_t need = plan.asked(), free = free_memory(device) / ranks_per_node;
  const bool on_gpu = device.kind == DeviceKind::gpu;
  if (free > 0 && need > free)
    throw OutOfMemory("out of memory: {} {}, but {}", bytes_text(free),
                      on_gpu               ? "are free on the GPU"
                      : ranks_per_node > 1 ? "are what each rank can have here"
                                           : "are what a process can have here",
                      memory_advice(plan, options, model, device, free, mesh));
  if (on_gpu) return;
  if (const int64_t available = host_memory().available / ranks_per_node; available > 0 && need > available)
    log.warning("{} of memory are available now, and the run needs {} by plan: it may be slow, or be killed",
                bytes_text(available), bytes_text(need));
}

}  // namespace chiron
