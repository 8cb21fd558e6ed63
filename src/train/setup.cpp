#include "train/setup.h"

#include "base/numbers.h"
#include "ops/norm/step_rules.h"
#include "train/hf_model.h"

namespace chiron {

Device choose_device(DeviceChoice choice, Log& log) {
  if (choice == DeviceChoice::cpu) return {};
  if constexpr (!gpu::kBuilt) {
    if (choice == DeviceChoice::automatic) return {};
    throw DeviceError("device gpu: this build of chiron runs on the CPU only; use cpu or auto");
  } else {
    try {
      if (std::string why = gpu::why_no_device(); !why.empty()) throw DeviceError("no GPU can be used: {}", why);
      const gpu::Traits t = gpu::traits(0);
      if (choice == DeviceChoice::automatic && t.emulated) return {};
      log.info("GPU: {} ({}, {})", t.name, t.target, bytes_text(t.memory));
      return {DeviceKind::gpu, 0};
    } catch (const DeviceError& e) {
      if (choice == DeviceChoice::gpu) throw DeviceError("device gpu: {}; use cpu or auto", e.what());
      log.warning("{}; computing on the CPU", e.what());
      return {};
    }
  }
}

Options with_model(Options options, Log& log) {
  if (!options.model_pending) return options;
  HfFolder folder(options.model.from);
  std::vector<std::string> remarks;
  ModelConfig model = hf_model_config(folder, remarks);
  for (const std::string& remark : remarks) log.warning("{}", remark);
  adopt_model(options, model, folder.dir() + "/config.json");
  validate(options);
  return options;
}

DType compute_dtype(const Options& options) {
  if (!options.training.use_amp) return DType::f32;
  return options.training.amp_dtype == AmpDType::bfloat16 ? DType::bf16 : DType::f16;
}

LossScaling loss_scaling(const Options& options) {
  const TrainingOptions& t = options.training;
  const bool by_itself = t.loss_scale.kind == LossScale::Kind::automatic;
  if (t.loss_scale.kind == LossScale::Kind::dynamic || (by_itself && compute_dtype(options) == DType::f16))
    return {kFirstLossScale, static_cast<int32_t>(t.loss_scale_interval)};
  return {by_itself ? 1 : static_cast<float>(t.loss_scale.value), 0};
}

ModelSetup model_setup(const Options& options, int64_t data_vocab, const Mesh& mesh) {
  ModelSetup setup;
  setup.config = options.model;
  if (setup.config.vocab_size == 0) setup.config.vocab_size = data_vocab;
  if (setup.config.vocab_size == 0)
    throw ConfigError(
        "model.vocab_size is 0, so that it comes from the data, and there is no data set {}: set model.vocab_size, or "
        "prepare the data",
        options.data.train.empty() ? "in data.train" : options.data.train[0]);
  if (setup.config.vocab_size < data_vocab)
    throw ConfigError("model.vocab_size is {}, but the data has {} tokens: set it to {} or more, or to 0",
                      setup.config.vocab_size, data_vocab, data_vocab);
  if (setup.config.max_seq_len == 0) setup.config.max_seq_len = options.training.seq_len;
  setup.label_smoothing = static_cast<float>(options.training.label_smoothing);
  setup.loss_chunk = options.training.loss_chunk;
  setup.tp = mesh.size(Axis::tp);
  setup.tp_rank = mesh.index(Axis::tp);
  setup.sequence_parallel = setup.tp > 1 && options.parallel.sequence;
  return setup;
}

StoreSetup store_setup(const Options& options, const Model& model, Mesh& mesh) {
  const auto chunks = static_cast<int>(options.parallel.chunks);
  return {.compute = compute_dtype(options),
          .zero = static_cast<int>(options.parallel.zero),
          .mesh = &mesh,
          .units = units_of_stage(model.units(), mesh.size(Axis::pp), chunks, mesh.index(Axis::pp)),
          .split_weight_gradients = options.parallel.schedule == PipelineOrder::zero_bubble && mesh.size(Axis::pp) > 1};
}

TrainStep::Setup step_setup(const Options& options, const Model& model) {
  const TrainingOptions& t = options.training;
  // A graph holds every launch of its region: those of a long step would take memory that no plan knows of.
  constexpr int64_t kMostMicros = 16;
  const bool long_step = options.run.graphs == Graphs::step && t.gradient_accumulation > kMostMicros;
  return {.compute = compute_dtype(options),
          .policy = make_policy(options.activations, model),
          .adamw = {static_cast<float>(t.beta1), static_cast<float>(t.beta2), static_cast<float>(t.eps),
                    static_cast<float>(t.weight_decay)},
          .graphs = long_step ? Graphs::unit : options.run.graphs,
          .sequence_parallel = options.parallel.tp > 1 && options.parallel.sequence,
          .order = options.parallel.schedule,
          .chunks = static_cast<int>(options.parallel.chunks),
          .micros = static_cast<int>(t.gradient_accumulation)};
}

}  // namespace chiron
