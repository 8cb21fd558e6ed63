#include "train/trainer.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/numbers.h"
#include "io/checkpoint.h"
#include "train/device_batch.h"
#include "train/hf_model.h"
#include "train/layout.h"
#include "train/memory.h"
#include "train/setup.h"
#include "train/weights.h"

namespace chiron {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

LearningRate rate_of(const TrainingOptions& t) {
  return {.shape = static_cast<LearningRate::Shape>(t.lr_schedule),
          .peak = t.learning_rate,
          .final = t.learning_rate * t.final_lr_fraction,
          .warmup_steps = t.warmup_steps,
          .max_steps = t.max_steps,
          .decay_steps = t.num_decay_steps()};
}

LoaderOptions loader_options(const Options& options, const Mesh& mesh) {
  return {.sequences = options.training.batch_size,
          .length = options.training.seq_len,
          .micros = options.training.gradient_accumulation,
          .rank = mesh.index(kBatchAxes),
          .num_ranks = mesh.size(kBatchAxes),
          .seed = options.training.seed,
          .shuffle = options.data.shuffle,
          .document_mask = options.data.document_mask};
}

/// The mesh of this run; fills in what its options leave open.
Mesh open_mesh(Options& options, Communicator& world) {
  const MeshSizes sizes = mesh_sizes(options, world.size());
  options = with_mesh(std::move(options), sizes);
  return world.size() > 1 ? Mesh(world, sizes) : Mesh::single();
}

Plan affordable_plan(const Options& options, const Model& model, const DeviceStream& s, Log& log) {
  Plan plan = make_plan(options, model, s.stream.device(), s.choices.get());
  check_memory(plan, options, model, s.stream.device(), log);
  plan.ops = {};
  return plan;
}

/// What to do about a damaged checkpoint is the user's choice: going back steps is not silently done.
Checkpoint open_newest(const std::string& path) {
  try {
    return Checkpoint(path);
  } catch (const DataError& e) {
    throw DataError("{}\nmove {} out of the way to go on from the checkpoint before it, or put a good copy there",
                    e.what(), path);
  }
}

/// In a checkpoint: the algorithms of products on a GPU.
constexpr const char* kProductsFile = "products.json";

DeviceStream stream_for(const Options& options, const Communicator& world, ThreadPool& pool, Log& log) {
  DeviceChoice choice = options.run.device;
  if (world.size() > 1) {
    if (choice == DeviceChoice::gpu)
      throw ConfigError("run.device: gpu with {} ranks: several ranks compute on the CPU only; set it to cpu or auto",
                        world.size());
    if (choice == DeviceChoice::automatic && gpu::kBuilt) log.info("{} ranks: computing on the CPU", world.size());
    choice = DeviceChoice::cpu;
  }
  DeviceStream s = open_stream(choice, pool, log);
  if (!s.stream.on_gpu()) refuse_float16(options);
  s.stream.set_tf32(options.training.matmul_precision == MatmulPrecision::tf32);
  return s;
}

}  // namespace

Trainer::Trainer(Options options, bool fresh, Log& log, Communicator& world)
    : world_(world),
      options_(with_model(with_model_of_run(std::move(options), fresh), log)),
      log_(log),
      mesh_(open_mesh(options_, world)),
      sources_(open_sources(options_, log)),
      model_(make_model(model_setup(options_, sources_.train->vocab_size(), mesh_))),
      pool_(static_cast<int>(options_.run.threads)),
      device_(stream_for(options_, world, pool_, log)),
      loader_(std::make_unique<Loader>(sources_.train, loader_options(options_, mesh_))),
      plan_(affordable_plan(options_, *model_, device_, log)),
      folder_(options_, fresh, log, is_first()),
      scalars_(stream_),
      rate_(rate_of(options_.training)) {
  if (sources_.validation && options_.training.eval_every > 0) {
    LoaderOptions once = loader_options(options_, mesh_);
    once.micros = 1;
    once.shuffle = false;
    once.once = true;
    validation_ = std::make_unique<Loader>(sources_.validation, once);
  }
  world_.barrier(stream_);  // the first rank has the folder
  choose_products();
  allocate();
  log_.info("{}: {}, {} a step, {} of memory by plan", folder_.dir(), counted(plan_.parameters, "parameter"),
            counted(plan_.tokens_per_step, "token"), bytes_text(plan_.total()));
  StepScalars scalars;
  scalars.loss_scale = loss_scaling(options_).first;
  scalars_.write(stream_, scalars);
  if (!resume()) load_weights();
}

void Trainer::choose_products() {
  if (!device_.choices) return;
  // A checkpoint's choices come first: the resumed run repeats the bits.
  if (auto newest = newest_checkpoint(folder_.checkpoints(), nullptr))
    device_.choices->load(newest->path + "/" + kProductsFile);
  tune_products(device_, log_);
}

void Trainer::allocate() {
  const Device device = stream_.device();
  try {
    params_ = make_store(stream_, model_->params(), store_setup(options_, *model_, mesh_));
    step_ = std::make_unique<TrainStep>(*model_, *params_, mesh_, step_setup(options_, *model_),
                                        Stacks::like(plan_.stacks, device), scalars_.device());
    batches_ = std::make_unique<DeviceBatches>(device, loader_->options());
  } catch (const OutOfMemory& e) {
    // There was room a moment ago: somebody else has taken it.
    batches_.reset();
    step_.reset();
    params_.reset();
    throw DeviceError("{}; {}", e.what(), memory_advice(plan_, options_, *model_, device, free_memory(device)));
  }
}

void Trainer::refuse_other_tokenizer() {
  const std::string file = options_.model.from + "/tokenizer.json";
  if (!sources_.tokenizer || !file_exists(file)) return;
  std::string hash;
  try {
    hash = open_tokenizer(file)->hash();
  } catch (const DataError& e) {
    log_.warning("cannot tell whether the data was made with the model's tokenizer: {}", e.what());
    return;
  }
  if (hash != sources_.tokenizer->hash())
    throw DataError(
        "{}: its tokens were made with another tokenizer than the model's; make them with `chiron prepare "
        "--tokenizer {}`",
        sources_.train->name(), file);
}

void Trainer::load_weights() {
  if (options_.model.from.empty()) {
    initialize(stream_, *params_, static_cast<uint64_t>(options_.training.seed));
    return;
  }
  refuse_other_tokenizer();
  load_hf_weights(stream_, *model_, *params_, HfFolder(options_.model.from));
  if (!weights_are_finite(Staging(stream_), *params_))
    throw DataError("{}: some of its weights are not finite; no training can start from them", options_.model.from);
  log_.info("starting from {}", options_.model.from);
}

bool Trainer::resume() {
  std::vector<std::string> skipped;
  auto newest = newest_checkpoint(folder_.checkpoints(), &skipped);
  for (const std::string& reason : skipped) log_.warning("passed over {}", reason);
  if (!newest && skipped.empty()) return false;
  if (!newest)
    throw DataError(
        "{}: no whole checkpoint is left to go on from:\n  {}\nput a good copy there, or start anew with --fresh",
        folder_.checkpoints(), fmt::join(skipped, "\n  "));
  const Checkpoint checkpoint = open_newest(newest->path);
  load_constants(stream_, *params_);
  const Staging staging(stream_);
  auto weights = weight_parts(*params_), moments = moment_parts(*params_);
  std::vector<std::string> names;
  for (const auto* parts : {&weights, &moments})
    for (const StatePart& part : *parts) names.push_back(part.name);
  checkpoint.check_names(names);
  for (const auto* parts : {&weights, &moments})
    for (const StatePart& part : *parts) checkpoint.read(part, staging);
  params_->refresh(stream_);

  JsonObject state(checkpoint.state(), newest->path + "/trainer_state.json");
  if (std::string hash = state.text("vocabulary_hash"); hash != sources_.vocabulary_hash())
    throw DataError("{}: the run was trained with another vocabulary than that of {}", newest->path,
                    sources_.train->name());
  if (state.text("data") != sources_.train->fingerprint())
    throw DataError(
        "{}: the run was trained on other data than what {} holds now; put that back, or start anew with "
        "--fresh",
        newest->path, sources_.train->name());
  // Checkpoints of before there was a loss scale lack what belongs to it.
  counters_ = {state.integer("step"), state.integer("skipped_steps"), state.integer("skipped_in_a_row"),
               state.integer("overflowed_steps", 0)};
  StepScalars scalars = scalars_.read(stream_);
  scalars.applied = state.integer("applied_steps");
  scalars.loss_scale = static_cast<float>(state.number("loss_scale", static_cast<double>(scalars.loss_scale)));
  scalars.good_steps = static_cast<int32_t>(state.integer("loss_scale_good_steps", 0));
  scalars_.write(stream_, scalars);
  saved_step_ = counters_.step;
  prune();  // a kill may have come between the last save and this
  log_.info("resumed from {}, step {}", newest->path, counters_.step);
  return true;
}

ExitCode Trainer::run() {
  const int64_t last = options_.training.max_steps;
  if (counters_.step >= last) {
    log_.info("done already: {}; set training.max_steps higher to go on", counted(counters_.step, "step"));
    return ExitCode::done;
  }
  // A newline first: on a terminal the cursor stands behind the progress line and ^C.
  StopSignal stop(options_.checkpoint.on_exit
                      ? "\nfinishing the step, then saving; Ctrl-C again aborts\n"
                      : "\nfinishing the step, without saving (checkpoint.on_exit); Ctrl-C again aborts\n");
  std::optional<Metrics> metrics;
  if (is_first()) metrics.emplace(folder_.metrics(), counters_.step);
  Progress progress(
      std::cout, [] { return terminal_columns(STDOUT_FILENO); },
      log_.enabled(LogLevel::debug) ? 1 : options_.logging.every);
  prefetcher_ = std::make_unique<Prefetcher>(*loader_, counters_.step);
  auto start = Clock::now();
  while (counters_.step < last) {
    const auto begin = Clock::now();
    StepStats stats = step(counters_.step);
    stats.seconds = seconds_since(begin);
    if (validation_ && (counters_.step % options_.training.eval_every == 0 || counters_.step == last))
      stats.validation_loss = validate(stop);
    stats.other_seconds = seconds_since(start) - stats.seconds;
    start = Clock::now();
    if (is_first() && log_.enabled(LogLevel::info)) progress.step(stats);
    if (metrics) metrics->write(stats);
    const bool due = options_.checkpoint.every > 0 && counters_.step % options_.checkpoint.every == 0;
    const bool stopping = this->stopping(stop);  // asked once: a signal from here on belongs to the next step
    if (due || counters_.step == last || (stopping && options_.checkpoint.on_exit)) save();
    if (stopping) break;
  }
  progress.finish();
  if (counters_.step == last) {
    log_.info("done: {}; the model is in {}", counted(counters_.step, "step"), folder_.dir());
    return ExitCode::done;
  }
  log_.info("stopped by a signal after step {}{}; the same command goes on", counters_.step,
            saved_step_ == counters_.step ? ", saved" : "");
  return ExitCode::stopped;
}

StepStats Trainer::step(int64_t n) {
  const double waited = prefetcher_->seconds_waited();
  const auto batches = batches_->upload(stream_, prefetcher_->at(n).micros);
  StepScalars scalars = scalars_.read(stream_);
  scalars.seed = static_cast<uint64_t>(options_.training.seed);
  scalars.step = n;
  scalars.learning_rate = static_cast<float>(rate_.at(n));
  scalars.max_norm = static_cast<float>(options_.training.gradient_clip_norm);
  scalars.scale_interval = loss_scaling(options_).interval;
  scalars_.write(stream_, scalars);
  step_->run(stream_, batches);
  scalars = scalars_.read(stream_);
  counters_.step = n + 1;
  watch(scalars);

  StepStats stats{.step = n + 1,
                  .max_steps = options_.training.max_steps,
                  .loss = static_cast<double>(scalars.loss),
                  .grad_norm = static_cast<double>(scalars.grad_norm),
                  .learning_rate = static_cast<double>(scalars.learning_rate),
                  .tokens = loader_->tokens_per_step(),
                  .data_wait_seconds = prefetcher_->seconds_waited() - waited,
                  .skipped_steps = counters_.skipped,
                  .overflowed_steps = counters_.overflowed,
                  .memory_bytes = resident_bytes()};
  if (scalars.scale_interval > 0) stats.loss_scale = static_cast<double>(scalars.loss_scale);
  return stats;
}

void Trainer::watch(const StepScalars& scalars) {
  if (scalars.finite) {
    counters_.skipped_in_a_row = 0;
    return;
  }
  if (scalars.overflowed) {
    ++counters_.overflowed;
    log_.info("step {} was skipped: gradients overflowed; the loss scale is now {}", counters_.step,
              scalars.loss_scale);
    return;
  }
  ++counters_.skipped;
  ++counters_.skipped_in_a_row;
  if (scalars.tokens == 0)
    log_.warning("step {} was skipped: no label of it counts", counters_.step);
  else
    log_.warning("step {} was skipped: its loss is {}, its gradient norm {}", counters_.step, scalars.loss,
                 scalars.grad_norm);
  if (counters_.skipped_in_a_row < options_.training.max_skipped_steps) return;
  throw Diverged(
      "{} steps in a row were not finite and were skipped (training.max_skipped_steps); the weights are "
      "those of step {}. A lower training.learning_rate or a longer training.warmup_steps may help",
      counters_.skipped_in_a_row, counters_.step - counters_.skipped_in_a_row);
}

std::optional<double> Trainer::validate(const StopSignal& stop) {
  const auto result = evaluate(stream_, *step_, scalars_, *batches_, *validation_, options_.training.eval_batches,
                               mesh_, [&] { return stopping(stop); });
  if (!result) return std::nullopt;
  return result->loss();
}

bool Trainer::stopping(const StopSignal& stop) {
  uint8_t asked = stop.requested();
  if (world_.size() == 1) return asked;
  Stream host = stream_.host();
  world_.all_reduce(host, {reinterpret_cast<uintptr_t>(&asked), DType::u8, {1}}, Reduce::max);
  return asked;
}

void Trainer::prune() {
  if (is_first()) prune_checkpoints(folder_.checkpoints(), options_.checkpoint.keep_last);
}

void Trainer::save() {
  if (saved_step_ == counters_.step) return;
  folder_.check_in_place();
  const Staging staging(stream_);
  if (!weights_are_finite(staging, *params_))
    throw Diverged(
        "after step {} some weights are not finite; nothing was saved, and what was saved before is whole. A "
        "lower training.learning_rate may help",
        counters_.step);
  const StepScalars scalars = scalars_.read(stream_);
  nlohmann::json state = {{"step", counters_.step},
                          {"applied_steps", scalars.applied},
                          {"skipped_steps", counters_.skipped},
                          {"skipped_in_a_row", counters_.skipped_in_a_row},
                          {"overflowed_steps", counters_.overflowed},
                          {"loss_scale", scalars.loss_scale},
                          {"loss_scale_good_steps", scalars.good_steps},
                          {"tokens", counters_.step * loader_->tokens_per_step()},
                          {"seed", options_.training.seed},
                          {"options", fingerprint(options_)},
                          {"vocabulary_hash", sources_.vocabulary_hash()},
                          {"data", sources_.train->fingerprint()},
                          {"ranks", 1}};
  std::map<std::string, std::string> extra = {{"config.json", model_->hf_config().dump(2) + "\n"}};
  if (device_.choices) extra[kProductsFile] = device_.choices->to_json().dump(1) + "\n";
  if (sources_.tokenizer) extra["tokenizer.json"] = sources_.tokenizer->json();
  save_checkpoint(folder_.checkpoints(), counters_.step, weight_parts(*params_, Which::mine),
                  moment_parts(*params_, Which::mine), state, extra, staging);
  prune();
  saved_step_ = counters_.step;
}

}  // namespace chiron
