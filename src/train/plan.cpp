#include "train/plan.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/numbers.h"
#include "data/loader.h"
#include "ops/gemm/multiply.h"
#include "parallel/store.h"
#include "train/device_batch.h"
#include "train/layout.h"
#include "train/run_state.h"
#include "train/setup.h"

namespace chiron {
namespace {

/// A dry step of `micros` micro-batches; the stacks' peaks are its need.
void run_dry(const Options& options, const Model& model, Device device, GemmChoices* choices, Mesh& mesh, int micros,
             OpRecorder& recorder, Plan& plan) {
  Stream s = Stream::dry(device);
  s.set_gemm_choices(choices);
  s.set_tf32(options.training.matmul_precision == MatmulPrecision::tf32);
  const auto params = make_store(s, model.params(), store_setup(options, model, mesh));
  StepScalars scalars;
  TrainStep::Setup setup = step_setup(options, model);
  setup.micros = micros;
  TrainStep step(model, *params, mesh, setup, std::nullopt, &scalars);
  Stack tokens = Stack::dry(7);
  std::vector<Batch> batches;
  for (int m = 0; m < micros; ++m)
    batches.push_back(push_batch(tokens, options.training.batch_size, loader_options(options, mesh).rank_length(),
                                 options.data.document_mask));
  s.set_trace(&recorder);
  step.run(s, batches);
  s.set_trace(nullptr);
  step.evaluate(s, batches.front());
  plan.stacks = std::move(step).take_stacks();
  plan.state = params->bytes();
  plan.batches = tokens.peak() / micros;
  if (device.kind == DeviceKind::cpu && saves_in_background(options))
    plan.snapshot = snapshot_bytes(state_tensors(*params));
}

/// Bytes of every batch that is in the CPU's memory, given those of one micro-batch and its scratch memory.
int64_t all_batches(const Options& options, const Model& model, int64_t one, int64_t context_ranks) {
  const TrainingOptions& t = options.training;
  const int64_t sorting = std::max(model.config().vocab_size, t.seq_len) * size_of(DType::i32);
  constexpr int64_t kSteps = 2;  // in use and prefetched
  // Context ranks cut their parts out of whole sequences.
  const int64_t uncut = sorting + (context_ranks > 1 ? context_ranks * one : 0);
  return kSteps * (t.gradient_accumulation * one + uncut) + (t.eval_every > 0 ? one + uncut : 0);
}

int64_t most_packed(const std::vector<PlannedOp>& ops, int threads) {
  int64_t most = 0;
  for (const LinearProduct& p : products_of(ops)) most = std::max(most, packing_bytes(p.m, p.n, p.k, p.dtype, threads));
  return most;
}

std::string operands(const std::vector<Operand>& list) {
  std::vector<std::string> parts;
  for (const Operand& o : list) parts.push_back(fmt::format("{}{}", name_of(o.dtype), o.shape.str()));
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace

std::string unit_name(Unit u, const Model& model) {
  if (u < 0) return "step";
  return u == 0 ? "embedding" : u == model.head() ? "head" : fmt::format("block {}", u);
}

Plan make_plan(const Options& options, const Model& model, Device device, GemmChoices* choices, const Mesh& place) {
  Plan plan;
  Mesh mesh = Mesh::planned(place.sizes(), place.size(Axis::all), place.rank());
  OpRecorder all, one;
  const int micros = static_cast<int>(options.training.gradient_accumulation);
  // A pipeline's memory depends on all its micro-batches. Else two are enough to meet both kinds of gradient, first and
  // added.
  const bool staged = mesh.size(Axis::pp) > 1;
  plan.work_micros = staged ? micros : std::min(micros, 2);
  run_dry(options, model, device, choices, mesh, staged ? micros : 1, one, plan);
  if (plan.work_micros > 1 && !staged) run_dry(options, model, device, choices, mesh, 2, all, plan);
  plan.step = one.work.total();
  if (!all.ops.empty()) {
    add(plan.step, all.work.total(), micros - 1);
    add(plan.step, one.work.total(), 1 - micros);
  }
  plan.work = std::move(all.ops.empty() ? one.work : all.work);

  const int64_t batch_tokens = options.training.batch_size * loader_options(options, mesh).rank_length();
  const int64_t own_tokens = options.training.batch_size * options.training.seq_len * micros;
  plan.tokens_per_step = own_tokens * mesh.size(kBatchAxes);
  const double per_micro = all.ops.empty() ? 0 : all.flops - one.flops;
  plan.flops_per_token = (one.flops + per_micro * (micros - 1)) / static_cast<double>(own_tokens);
  plan.ops = std::move(one.ops);

  // Of the whole model, of which this rank may have a part.
  ModelSetup whole = model.setup();
  whole.tp = 1, whole.tp_rank = 0;
  const auto whole_model = make_model(whole);
  for (const ParamSpec& spec : whole_model->params()) {
    if (spec.tied_to != kNoParam) continue;
    plan.parameters += spec.valid_numel();
    if (spec.trainable) plan.trained_parameters += spec.valid_numel();
  }
  const ModelConfig& m = model.config();
  plan.model_flops_per_token =
      6.0 * static_cast<double>(plan.parameters) + 12.0 * static_cast<double>(m.num_layers * m.num_heads * m.head_dim) *
                                                       static_cast<double>(options.training.seq_len);

  const int64_t chunk = options.training.loss_chunk;
  const int64_t logit_rows = chunk > 0 ? std::min(chunk, batch_tokens) : batch_tokens;
  if (mesh.index(Axis::pp) + 1 == mesh.size(Axis::pp))
    plan.logits = logit_rows * model.padded_vocab() / model.setup().tp * size_of(compute_dtype(options));
  plan.activations = plan.stacks.saved_peak();
  plan.temporary = plan.stacks.unit.peak() + plan.stacks.temp.peak() - plan.logits;
  if (device.kind == DeviceKind::gpu) {
    plan.batches *= micros;
    plan.program = Plan::kGpuProgram;
    return plan;
  }
  plan.batches = all_batches(options, model, plan.batches, mesh.size(Axis::cp));
  const int64_t threads = options.run.threads > 0 ? options.run.threads : num_cores();
  plan.workspace = most_packed(plan.ops, static_cast<int>(threads));
  return plan;
}

std::string plan_table(const Plan& plan, const Options& options, const Model& model, const std::string& whose) {
  const ModelConfig& m = model.config();
  std::string out =
      fmt::format("{} with {} layers, width {}, {} heads ({} for keys and values), vocabulary {} ({} in memory)\n\n",
                  names_of(m.family)[static_cast<size_t>(m.family)], m.num_layers, m.d_model, m.num_heads,
                  m.num_kv_heads, m.vocab_size, model.padded_vocab());
  auto line = [&](std::string_view what, const std::string& value) {
    out += fmt::format("{:<28}{:>16}\n", what, value);
  };
  line("parameters", with_commas(plan.parameters));
  if (plan.trained_parameters != plan.parameters) line("  of them trained", with_commas(plan.trained_parameters));
  line("FLOPs per token", fmt::format("{:.4g}", plan.flops_per_token));
  line("  by 6 N + 12 L H D T", fmt::format("{:.4g}", plan.model_flops_per_token));
  line("tokens per step", with_commas(plan.tokens_per_step));
  line("FLOPs per step", fmt::format("{:.4g}", plan.flops_per_token * static_cast<double>(plan.tokens_per_step)));
  const bool on_gpu = plan.program == Plan::kGpuProgram;
  out += fmt::format("\n{} of {}, computing in {}, activations {}\n", on_gpu ? "GPU memory" : "memory", whose,
                     name_of(compute_dtype(options)), options.activations.yaml());
  auto memory = [&](std::string_view what, int64_t bytes) { line(what, bytes_text(bytes)); };
  memory("  weights", plan.state.weights);
  memory("  gradients", plan.state.gradients);
  memory("  optimizer", plan.state.optimizer);
  if (plan.state.buffers > 0) memory("  units that pass through", plan.state.buffers);
  memory("  activations kept", plan.activations);
  memory("  temporary", plan.temporary);
  memory("  logits", plan.logits);
  memory("  batches of tokens", plan.batches);
  if (plan.snapshot > 0) memory("  snapshot for saving", plan.snapshot);
  if (!on_gpu) memory("  workspace of products", plan.workspace);
  memory(on_gpu ? "  driver and libraries" : "  program at work", plan.program);
  memory("  total", plan.total());
  return out;
}

std::string plan_ops_table(const Plan& plan, const Options& options, const Model& model) {
  const int64_t micros = options.training.gradient_accumulation;
  std::string out = micros > 1 && options.parallel.pp == 1
                        ? fmt::format("the first of {} micro-batches, and the update\n", micros)
                        : "the step\n";
  out += fmt::format("{:<10} {:<8} {:<6} {:<9} {:<24} {:>9} {:>9}  {}\n", "unit", "pass", "slot", "", "op", "bytes",
                     "FLOPs", "outputs <- inputs");
  for (const PlannedOp& op : plan.ops) {
    const char* pass = op.unit < 0 ? "" : op.forward ? "forward" : "backward";
    const char* memo = op.slot.empty() ? "" : op.again ? "again" : op.kept ? "kept" : "forgotten";
    out += fmt::format("{:<10} {:<8} {:<6} {:<9} {:<24} {:>9} {:>9}  {} <- {}\n", unit_name(op.unit, model), pass,
                       op.slot, memo, op.name, bytes_text(op.bytes()),
                       op.flops > 0 ? fmt::format("{:.3g}", op.flops) : "-", operands(op.outputs), operands(op.inputs));
  }
  // No blanks at the ends of lines.
  for (size_t at; (at = out.find(" \n")) != std::string::npos;) out.erase(at, 1);
  return out;
}

}  // namespace chiron
