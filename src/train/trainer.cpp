#include "train/trainer.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/numbers.h"
#include "comm/together.h"
#include "train/auto_layout.h"
#include "train/device_batch.h"
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

/// The largest value of any rank.
int64_t most(Communicator& world, int64_t mine) {
  ThreadPool alone(1);
  Stream host({}, alone);
  world.all_reduce(host, {reinterpret_cast<uintptr_t>(&mine), DType::i64, {1}}, Reduce::max);
  return mine;
}

/// The mesh of this run; fills in what its options leave open.
Mesh open_mesh(Options& options, Communicator& world, int per_node, Log& log) {
  if (options.parallel.automatic && world.size() > 1) {
    // All ranks choose alike: by the node that has least.
    const auto on_node = static_cast<int>(most(world, per_node));
    const int64_t memory = -most(world, -free_memory({}) / on_node);
    AutoLayout chosen = choose_layout(options, data_vocabulary(options), {world.size(), on_node, memory});
    log.info("{}", chosen.text);
    options = std::move(chosen.options);
  }
  const MeshSizes sizes = mesh_sizes(options, world.size());
  options = with_mesh(std::move(options), sizes);
  return world.size() > 1 ? Mesh(world, sizes) : Mesh::single();
}

Plan affordable_plan(const Options& options, const Model& model, const DeviceStream& s, const Mesh& mesh, int per_node,
                     Log& log) {
  Plan plan = make_plan(options, model, s.stream.device(), s.choices.get(), mesh);
  check_memory(plan, options, model, s.stream.device(), log, mesh, per_node);
  plan.ops = {};
  plan.work = {};
  return plan;
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

Trainer::Trainer(Options options, bool fresh, Log& log, Communicator& world, int ranks_per_node)
    : world_(world),
      per_node_(ranks_per_node > 0 ? ranks_per_node : world.size()),
      options_(with_model(with_model_of_run(std::move(options), fresh), log)),
      log_(log),
      mesh_(open_mesh(options_, world, per_node_, log)),
      sources_(open_sources(options_, log)),
      model_(make_model(model_setup(options_, sources_.train->vocab_size(), mesh_))),
      pool_(static_cast<int>(options_.run.threads)),
      device_(stream_for(options_, world, pool_, log)),
      loader_(std::make_unique<Loader>(sources_.train, loader_options(options_, mesh_))),
      plan_(affordable_plan(options_, *model_, device_, mesh_, per_node_, log)),
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
  const auto newest = find_newest(folder_.checkpoints(), world_, stream_, log_);
  choose_products(newest);
  allocate();
  log_.info("{}: {}, {} a step, {} of memory by plan", folder_.dir(), counted(plan_.parameters, "parameter"),
            counted(plan_.tokens_per_step, "token"), bytes_text(plan_.total()));
  StepScalars scalars;
  scalars.loss_scale = loss_scaling(options_).first;
  if (newest) {
    load_state(*newest, world_, stream_, *params_, sources_, counters_, scalars);
    saved_step_ = counters_.step;
    together(world_, stream_, [&] {  // a kill may have come between the last save and this
      if (is_first()) prune_checkpoints(folder_.checkpoints(), options_.checkpoint.keep_last);
    });
    log_.info("resumed from {}, step {}", newest->path, counters_.step);
  } else {
    first_weights(stream_, options_, *model_, *params_, sources_, log_);
  }
  scalars_.write(stream_, scalars);
}

void Trainer::choose_products(const std::optional<CheckpointInfo>& newest) {
  if (!device_.choices) return;
  // A checkpoint's choices come first: the resumed run repeats the bits.
  if (newest) device_.choices->load(newest->path + "/" + kProductsFile);
  tune_products(device_, log_);
}

void Trainer::allocate() {
  const Device device = stream_.device();
  try {
    params_ = make_store(stream_, model_->params(), store_setup(options_, *model_, mesh_));
    step_ = std::make_unique<TrainStep>(*model_, *params_, mesh_, step_setup(options_, *model_),
                                        Stacks::like(plan_.stacks, device), scalars_.device());
    batches_ = std::make_unique<DeviceBatches>(device, loader_->options());
    saver_ = std::make_unique<Saver>(
        Saver::Setup{.dir = folder_.checkpoints(),
                     .keep_last = options_.checkpoint.keep_last,
                     .writers = options_.checkpoint.writers,
                     .snapshot_bytes = saves_in_background(options_) ? snapshot_bytes(state_tensors(*params_)) : 0},
        world_, stream_);
  } catch (const OutOfMemory& e) {
    // There was room a moment ago: somebody else has taken it.
    saver_.reset();
    batches_.reset();
    step_.reset();
    params_.reset();
    throw DeviceError("{}; {}", e.what(),
                      memory_advice(plan_, options_, *model_, device, free_memory(device) / per_node_, mesh_));
  }
}

ExitCode Trainer::run() {
  const int64_t last = options_.training.max_steps;
  if (counters_.step >= last) {
    log_.info("done already: {}; set training.max_steps higher to go on", counted(counters_.step, "step"));
    return ExitCode::done;
  }
  // A newline first: on a terminal the cursor stands behind the progress line and ^C.
  StopSignal stop(!is_first() ? ""
                  : options_.checkpoint.on_exit
                      ? "\nfinishing the step, then saving; Ctrl-C again aborts\n"
                      : "\nfinishing the step, without saving (checkpoint.on_exit); Ctrl-C again aborts\n");
  std::optional<Metrics> metrics;
  if (is_first()) metrics.emplace(folder_.metrics(), counters_.step);
  Progress progress(
      // mpirun gives each rank a terminal, whatever its own output is.
      std::cout, [this] { return world_.size() > 1 ? 0 : terminal_columns(STDOUT_FILENO); },
      log_.enabled(LogLevel::debug) ? 1 : options_.logging.every);
  prefetcher_ = std::make_unique<Prefetcher>(*loader_, counters_.step);
  auto start = Clock::now();
  while (counters_.step < last) {
    const auto begin = Clock::now();
    StepStats stats = step(counters_.step);
    stats.seconds = seconds_since(begin);
    saver_->poll();
    if (validation_ && (counters_.step % options_.training.eval_every == 0 || counters_.step == last))
      stats.validation_loss = validate(stop);
    stats.other_seconds = seconds_since(start) - stats.seconds;
    start = Clock::now();
    if (is_first() && log_.enabled(LogLevel::info)) progress.step(stats);
    if (metrics) metrics->write(stats);
    const bool due = options_.checkpoint.every > 0 && counters_.step % options_.checkpoint.every == 0;
    const bool stopping = this->stopping(stop);  // asked once: a signal from here on belongs to the next step
    const bool ends = counters_.step == last || stopping;
    if (due || counters_.step == last || (stopping && options_.checkpoint.on_exit)) save(ends);
    if (stopping) break;
  }
  saver_->finish();
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
  saver_->finish();
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

void Trainer::save(bool ends) {
  if (saved_step_ == counters_.step) return;
  together(world_, stream_, [&] {
    if (is_first()) folder_.check_in_place();
    if (!weights_are_finite(Staging(stream_), *params_))
      throw Diverged(
          "after step {} some weights are not finite; nothing was saved, and what was saved before is whole. A "
          "lower training.learning_rate may help",
          counters_.step);
  });
  SaveContents contents = state_tensors(*params_);
  contents.step = counters_.step;
  contents.state = state_json(counters_, scalars_.read(stream_), options_, sources_, world_.size());
  contents.extra = {{"config.json", model_->hf_config().dump(2) + "\n"}};
  if (device_.choices) contents.extra[kProductsFile] = device_.choices->to_json().dump(1) + "\n";
  if (sources_.tokenizer) contents.extra["tokenizer.json"] = sources_.tokenizer->json();
  // Nothing would go on while the last one is written.
  saver_->save(std::move(contents), saves_in_background(options_) && !ends);
  saved_step_ = counters_.step;
}

}  // namespace chiron
