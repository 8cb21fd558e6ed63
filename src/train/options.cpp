#include "train/options.h"

#include <algorithm>
#include <filesystem>

#include "base/complaints.h"
#include "base/files.h"

namespace chiron {

void TrainingOptions::describe(Schema& s) {
  constexpr int64_t kMax = int64_t{1} << 30;
  s.option("batch_size", batch_size, "Sequences per micro-batch and data rank.").at_least(1).at_most(kMax);
  s.option("seq_len", seq_len, "Tokens per sequence.").at_least(1).at_most(kMax).unit("tokens");
  s.option("gradient_accumulation", gradient_accumulation, "Micro-batches per step.").at_least(1).at_most(kMax);
  s.option("max_steps", max_steps,
           "Steps (updates of the weights) of the whole run. The schedules linear, cosine and wsd end there.")
      .at_least(1)
      .unit("steps")
      .changeable();
  s.option("learning_rate", learning_rate, "The highest learning rate, reached after the warm-up.")
      .above(0)
      .at_most(10);
  s.option("final_lr_fraction", final_lr_fraction,
           "Where the schedule ends, as a fraction of learning_rate (constant: not used).")
      .at_least(0)
      .at_most(1);
  s.option("lr_schedule", lr_schedule,
           "The learning rate after the warm-up: constant, falling on a line or a half cosine until max_steps, or wsd: "
           "constant and then falling on a line for the last decay_steps.");
  s.option("warmup_steps", warmup_steps, "Over this many steps the learning rate rises from 0 on a line.")
      .at_least(0)
      .unit("steps");
  s.option("decay_steps", decay_steps, "wsd: length of the decay. 0: a tenth of max_steps.").at_least(0).unit("steps");
  s.option("weight_decay", weight_decay, "Decoupled weight decay of the matrices; biases and norms have none.")
      .at_least(0)
      .at_most(10);
  s.option("beta1", beta1, "AdamW: decay of the mean of gradients.").at_least(0).at_most(0.99999);
  s.option("beta2", beta2, "AdamW: decay of the mean of squared gradients.").at_least(0).at_most(0.99999);
  s.option("eps", eps, "AdamW: added to the root of the mean of squares.").at_least(1e-20).at_most(1);
  s.option("gradient_clip_norm", gradient_clip_norm, "Gradients are scaled down to this global norm. 0: never.")
      .at_least(0);
  s.option("use_amp", use_amp,
           "Mixed precision: weights and activations in amp_dtype, with float32 master weights and sums.");
  s.option("amp_dtype", amp_dtype, "The narrow type of use_amp. float16 needs a GPU.");
  s.option("matmul_precision", matmul_precision,
           "Products of float32 matrices on a GPU: exact to float32, or with operands rounded to tf32 (10 bits of "
           "mantissa), which some GPUs multiply several times as fast. Other devices, and use_amp, do not see it.");
  s.option(
      "loss_scale", loss_scale,
      "By what the loss is multiplied before the backward pass; gradients are divided by it again. dynamic: a power "
      "of two that halves when gradients overflow, which skips the step, and doubles now and then. auto: dynamic "
      "in float16, else 1.");
  s.option("loss_scale_interval", loss_scale_interval,
           "Applied steps after which a dynamic loss scale doubles (from 65536, at most to 16777216).")
      .at_least(1)
      .at_most(kMax)
      .unit("steps");
  s.option("label_smoothing", label_smoothing, "Share of the target that is spread over the whole vocabulary.")
      .at_least(0)
      .below(1);
  s.option("loss_chunk", loss_chunk,
           "Rows of logits that exist at one time in the head: less memory for large vocabularies. 0: all.")
      .at_least(0)
      .unit("tokens");
  s.option("seed", seed, "Where all random numbers of the run come from.").at_least(0);
  s.option("max_skipped_steps", max_skipped_steps,
           "A step whose loss or gradient is not finite changes nothing; after this many in a row the run stops.")
      .at_least(1)
      .unit("steps")
      .changeable();
  s.option("eval_every", eval_every, "Steps between two evaluations on the validation data. 0: never.")
      .at_least(0)
      .unit("steps")
      .changeable();
  s.option("eval_batches", eval_batches, "Micro-batches per evaluation. 0: the whole validation data.")
      .at_least(0)
      .changeable();
}

int64_t TrainingOptions::num_decay_steps() const {
  return decay_steps ? decay_steps : std::max<int64_t>(1, max_steps / 10);
}

void DataOptions::describe(Schema& s) {
  s.option("train", train, "Folders with training data, as `chiron prepare` writes them.");
  s.option("validation", validation, "Folders with validation data.").changeable();
  s.option("synthetic", synthetic,
           "Made-up text that can be learnt, in place of data.train: for tests and measurements.");
  s.option("shuffle", shuffle, "Whether each epoch sees the sequences in another random order.");
  s.option("document_mask", document_mask, "Whether tokens attend only to their own document.");
}

void CheckpointOptions::describe(Schema& s) {
  s.option("every", every, "Steps between two checkpoints. 0: none on the way.").at_least(0).unit("steps").changeable();
  s.option("keep_last", keep_last, "How many of the newest checkpoints stay.").at_least(1).changeable();
  s.option("on_exit", on_exit, "Whether a signal that ends the run writes one too; the run's own end always does.")
      .changeable();
  s.option("async", async,
           "Whether training goes on while one is written, from a copy of weights and optimizer state in the host's "
           "memory. `chiron plan` shows what that takes.")
      .changeable();
  s.option("writers", writers, "Ranks of one node that write at a time. 0: all.").at_least(0).changeable();
}

void RunOptions::describe(Schema& s) {
  s.option("dir", dir, "The run's folder. Empty: runs/ and the name of the configuration file.").changeable();
  s.option("device", device, "Where to compute. auto: on a GPU if there is one and the build supports it.")
      .changeable();
  s.option(
       "graphs", graphs,
       "What a GPU is given to run at one time: single kernels, a block's pass over a micro-batch, or the whole step "
       "(of at most 16 micro-batches; else as unit). All give the same bits; `off` names an op that fails.")
      .changeable();
  s.option("threads", threads, "Threads for computing on the CPU. 0: one per core.")
      .at_least(0)
      .at_most(1024)
      .changeable();
}

void LoggingOptions::describe(Schema& s) {
  s.option("level", level, "What is worth a line: DEBUG shows every step, INFO every n-th.").changeable();
  s.option("every", every, "n of INFO.").at_least(1).unit("steps").changeable();
}

void Options::describe(Schema& s) {
  s.group("model", model, "The model.");
  s.group("training", training, "How the model is trained.");
  s.group("data", data, "What it is trained on.");
  s.group("parallel", parallel, "How it is spread over several ranks.");
  s.group("checkpoint", checkpoint, "When the state of the run is saved.");
  s.group("run", run, "Where the run lives and computes.");
  s.group("logging", logging, "What the run says.");
  s.option("activations", activations,
           "Which activations are kept for the backward pass; the others are computed again, with the same bits. "
           "keep_all is the fastest, keep_none needs the least memory. every: K lets every K-th block keep only its "
           "input. keep: a list of slots of each block, as `chiron plan --ops` names them.")
      .changeable();
}

namespace {

bool is_dropout(std::string_view key) { return key.starts_with("model.") && key.ends_with("dropout"); }

const Options::Given* find_given(const Options& o, std::string_view key) {
  auto at = std::find_if(o.given.begin(), o.given.end(), [&](const auto& g) { return g.key == key; });
  return at == o.given.end() ? nullptr : &*at;
}

void fill_given(Options& o, const Schema& schema) {
  for (const auto& option : schema.options())
    if (!option->place().empty()) o.given.push_back({option->key(), option->place()});
}

/// Refuses what was given and would have no effect with this family.
void refuse_without_effect(const Options& o) {
  constexpr std::string_view kModel = "model.";
  for (const auto& given : o.given) {
    if (!given.key.starts_with(kModel)) continue;
    const std::string why = why_without_effect(o.model, std::string_view(given.key).substr(kModel.size()));
    if (!why.empty()) throw ConfigError("{}: {}: {}", given.place, given.key, why);
  }
}

/// Resolves and checks a model that is known.
void settle_model(Options& o) {
  Complaints complaints;
  complaints.collect([&] { refuse_without_effect(o); });
  resolve(o.model);
  if (o.model.max_seq_len == 0) o.model.max_seq_len = o.training.seq_len;
  complaints.collect([&] { validate(o); });
  complaints.raise();
}

void validate_training(const Options& o) {
  const TrainingOptions& t = o.training;
  if (t.lr_schedule == LrSchedule::wsd && t.num_decay_steps() > t.max_steps)
    throw ConfigError("training.decay_steps is {} and training.max_steps {}: the decay cannot be longer than the run",
                      t.decay_steps, t.max_steps);
  if (!o.model_pending && t.seq_len > o.model.max_seq_len)
    throw ConfigError(
        "training.seq_len is {} and model.max_seq_len {}: the model cannot take such sequences; lower the "
        "one or raise the other",
        t.seq_len, o.model.max_seq_len);
  if (o.run.device == DeviceChoice::cpu) refuse_float16(o);
  constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;
  int64_t tokens = 0;
  if (__builtin_mul_overflow(t.batch_size, t.seq_len, &tokens) ||
      __builtin_mul_overflow(tokens, t.gradient_accumulation, &tokens) || tokens > kMaxTokens) {
    throw ConfigError(
        "training.batch_size {} x training.seq_len {} x training.gradient_accumulation {}: a step may hold "
        "at most {} tokens",
        t.batch_size, t.seq_len, t.gradient_accumulation, kMaxTokens);
  }
}

void validate_data(const DataOptions& d) {
  if (d.synthetic && !d.train.empty())
    throw ConfigError("data.synthetic is true and data.train names {}: take one of them", d.train[0]);
  if (d.synthetic && !d.validation.empty())
    throw ConfigError(
        "data.synthetic is true, which brings its own validation data, and data.validation names {}: take "
        "one of them",
        d.validation[0]);
  if (!d.synthetic && d.train.empty())
    throw ConfigError("data.train is empty: name a folder that `chiron prepare` wrote, or take data.synthetic: true");
  for (const auto* list : {&d.train, &d.validation}) {
    const char* key = list == &d.train ? "data.train" : "data.validation";
    for (auto at = list->begin(); at != list->end(); ++at) {
      if (at->empty()) throw ConfigError("{}: an empty string is no folder", key);
      if (std::find(list->begin(), at, *at) != at) throw ConfigError("{}: {} stands twice", key, *at);
    }
  }
}

}  // namespace

void refuse_float16(const Options& o) {
  if (!o.training.use_amp || o.training.amp_dtype != AmpDType::float16) return;
  throw ConfigError(
      "training.amp_dtype is float16 and run.device {}: a CPU has no fast float16 arithmetic, so that float16 needs a "
      "GPU; take training.amp_dtype: bfloat16, or training.use_amp: false",
      o.run.device == DeviceChoice::cpu ? "cpu" : "auto, which is the CPU here");
}

void validate(const Options& o) {
  Complaints complaints;
  complaints.collect([&] { validate_training(o); });
  complaints.collect([&] { validate_data(o.data); });
  if (!o.model_pending) complaints.collect([&] { validate(o.model); });
  complaints.raise();
}

Options load_options(const std::string& file, const std::vector<std::string>& sets) {
  if (directory_exists(file)) {
    const std::string inside = file + "/config.yaml";
    throw ConfigError("{} is a folder, and a configuration is a YAML file{}", file,
                      file_exists(inside) ? "; that of this run is " + inside : "");
  }
  Options o;
  Schema schema(o);
  Complaints complaints;
  complaints.collect([&] { schema.read(read_yaml(file)); });
  for (const std::string& assignment : sets) complaints.collect([&] { schema.set(assignment); });
  complaints.raise();
  fill_given(o, schema);
  if (o.run.dir.empty()) o.run.dir = (std::filesystem::path("runs") / std::filesystem::path(file).stem()).string();
  o.model_pending = !o.model.from.empty();
  if (o.model_pending)
    validate(o);
  else
    settle_model(o);
  return o;
}

Options read_resolved(const std::string& file) {
  Options o;
  Schema schema(o);
  schema.read(read_yaml(file));
  fill_given(o, schema);
  return o;
}

void adopt_model(Options& o, const ModelConfig& model, const std::string& source) {
  CHECK(o.model_pending);
  Options found;
  found.model = model;
  Schema asked(o), there(found);
  for (size_t i = 0; i < asked.options().size(); ++i) {
    const Option &mine = *asked.options()[i], &its = *there.options()[i];
    const auto* given = find_given(o, mine.key());
    if (!given || !mine.key().starts_with("model.") || mine.key() == "model.from") continue;
    if (is_dropout(mine.key())) {
      there.find(mine.key())->set_text(mine.yaml(), given->place);
    } else if (mine.yaml() != its.yaml()) {
      throw ConfigError("{}: {}: {} does not agree with {}, which says {}; leave it out", given->place, mine.key(),
                        mine.yaml(), source, its.yaml());
    }
  }
  found.model.from = o.model.from;
  o.model = found.model;
  o.model_pending = false;
  settle_model(o);
}

std::string to_yaml(const Options& options) {
  Options copy = options;
  return Schema(copy).dump([&](const Option& option) {
    bool of_model = option.key().starts_with("model.");
    return !options.model_pending || !of_model || find_given(options, option.key());
  });
}

std::vector<std::pair<std::string, std::string>> values(const Options& options) {
  Options copy = options;
  const Schema schema(copy);
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& option : schema.options()) all.emplace_back(option->key(), option->yaml());
  return all;
}

std::vector<Difference> differences(const Options& before, const Options& now) {
  Options a = before, b = now;
  return differences(Schema(a), Schema(b));
}

std::string fingerprint(const Options& options) {
  Options copy = options;
  return fingerprint(Schema(copy));
}

}  // namespace chiron
