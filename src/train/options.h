#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/schema.h"
#include "core/graph.h"
#include "models/config.h"
#include "train/activations.h"
#include "train/loss_scale.h"
#include "train/parallel_options.h"

namespace chiron {

enum class LrSchedule : uint8_t { constant, linear, cosine, wsd };
constexpr std::array<std::string_view, 4> names_of(LrSchedule) { return {"constant", "linear", "cosine", "wsd"}; }

enum class AmpDType : uint8_t { bfloat16, float16 };
constexpr std::array<std::string_view, 2> names_of(AmpDType) { return {"bfloat16", "float16"}; }

enum class MatmulPrecision : uint8_t { float32, tf32 };
constexpr std::array<std::string_view, 2> names_of(MatmulPrecision) { return {"float32", "tf32"}; }

enum class DeviceChoice : uint8_t { automatic, cpu, gpu };
constexpr std::array<std::string_view, 3> names_of(DeviceChoice) { return {"auto", "cpu", "gpu"}; }

struct TrainingOptions {
  int64_t batch_size = 8, seq_len = 256, gradient_accumulation = 1, max_steps = 1000;
  double learning_rate = 1e-3, final_lr_fraction = 0.1;
  LrSchedule lr_schedule = LrSchedule::cosine;
  int64_t warmup_steps = 100, decay_steps = 0;
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, gradient_clip_norm = 1;
  bool use_amp = false;
  AmpDType amp_dtype = AmpDType::bfloat16;
  MatmulPrecision matmul_precision = MatmulPrecision::float32;
  LossScale loss_scale;
  int64_t loss_scale_interval = 2000;
  double label_smoothing = 0;
  int64_t loss_chunk = 0, seed = 1, max_skipped_steps = 10;
  int64_t eval_every = 250, eval_batches = 50;

  void describe(Schema& s);
  /// Steps of the decay at the end of a wsd schedule.
  int64_t num_decay_steps() const;
};

struct DataOptions {
  std::vector<std::string> train, validation;
  bool synthetic = false, shuffle = true, document_mask = false;

  void describe(Schema& s);
};

struct CheckpointOptions {
  int64_t every = 500, keep_last = 2;
  bool on_exit = true, async = true;
  int64_t writers = 0;

  void describe(Schema& s);
};

struct RunOptions {
  std::string dir;
  DeviceChoice device = DeviceChoice::automatic;
  Graphs graphs = Graphs::step;
  int64_t threads = 0;

  void describe(Schema& s);
};

struct LoggingOptions {
  LogLevel level = LogLevel::info;
  int64_t every = 10;

  void describe(Schema& s);
};

/// Everything that a run can be told: the one statement of options, from which parser, help, documents, dump and the
/// comparison on resume come.
struct Options {
  ModelConfig model;
  TrainingOptions training;
  DataOptions data;
  ParallelOptions parallel;
  CheckpointOptions checkpoint;
  RunOptions run;
  LoggingOptions logging;
  Activations activations;

  void describe(Schema& s);

  // Not options.

  /// Option keys that a file or --set gave, and where.
  struct Given {
    std::string key, place;
  };
  std::vector<Given> given;
  /// model.from names a folder that nobody has read yet: the sizes in `model` are not known. Ends with adopt_model().
  bool model_pending = false;
};

/// Reads a configuration file, then the `--set` texts ("a.b=value"), the last one winning, resolves and validates.
/// run.dir defaults to runs/<stem of the file>. Throws one ConfigError for all that is wrong, or IoError if the file
/// cannot be read.
Options load_options(const std::string& file, const std::vector<std::string>& sets = {});

/// Reads a resolved configuration that to_yaml() wrote, as it stands.
Options read_resolved(const std::string& file);

/// Takes the model that the folder model.from holds. Throws ConfigError if an option that was given says otherwise;
/// dropouts are the run's own and need not agree. `source` names the folder's file in messages.
void adopt_model(Options& options, const ModelConfig& model, const std::string& source);

/// Throws ConfigError if options contradict each other; the message names them, their values and what would do.
void validate(const Options& options);

/// ConfigError if options ask for float16: for those who are about to compute on a CPU.
void refuse_float16(const Options& options);

/// The resolved configuration, ready for load_options(). While the model is pending, only what was given of it.
std::string to_yaml(const Options& options);

/// All options, key and value.
std::vector<std::pair<std::string, std::string>> values(const Options& options);
/// Options that may not change on resume and differ.
std::vector<Difference> differences(const Options& before, const Options& now);
/// 32 hex digits over all options that define the numbers.
std::string fingerprint(const Options& options);

}  // namespace chiron
