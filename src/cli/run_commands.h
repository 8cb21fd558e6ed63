#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "train/bench.h"

/// The commands about a run's configuration.
namespace chiron::cli {

struct TrainArgs {
  std::string config;
  std::vector<std::string> sets;
  std::string out;
  bool fresh = false;
  int64_t crash_at = 0, disk_full_at = 0;  ///< file operations, for tests; 0: none

  void describe(Command& c);
};

/// Trains a model; returns ExitCode::stopped after a signal and a checkpoint.
ExitCode train(const TrainArgs& args);

struct LaunchArgs {
  int64_t nproc = 0, nnodes = 0, node_rank = 0, max_restarts = 0;
  std::string rdzv, hostfile;
  std::vector<std::string> command;

  void describe(Command& c);
};

/// Starts the ranks of `command` through mpirun, passes signals on, and returns the code of the first rank to fail.
ExitCode launch(const LaunchArgs& args);

struct PlanArgs {
  std::string config;
  std::vector<std::string> sets;
  bool ops = false;
  int64_t ranks = 0;    ///< 0: as many as the cluster has, or the layout says
  std::string cluster;  ///< a file

  void describe(Command& c);
};

/// Prints what a run needs, without allocating the model.
ExitCode plan(const PlanArgs& args);

enum class BenchSubject : uint8_t { step, ops };
constexpr std::array<std::string_view, 2> names_of(BenchSubject) { return {"step", "ops"}; }

struct BenchArgs {
  BenchSubject subject = BenchSubject::step;
  std::string config;  ///< of the step; empty: gpt2-10m
  std::vector<std::string> sets;
  int64_t steps = 15;
  int64_t threads = 0;
  bool json = false;

  void describe(Command& c);
};

/// Warns of a step that was faster than its products alone.
void warn_if_busy(const Figures& step, Log& log);
/// Measures a training step, or the ops one by one.
ExitCode bench(const BenchArgs& args);

struct ConfigShowArgs {
  std::string config;
  std::vector<std::string> sets;

  void describe(Command& c);
};

struct ConfigCheckArgs {
  std::vector<std::string> configs;
  std::vector<std::string> sets;

  void describe(Command& c);
};

enum class SchemaFormat : uint8_t { text, json, markdown };
constexpr std::array<std::string_view, 3> names_of(SchemaFormat) { return {"text", "json", "markdown"}; }

struct ConfigSchemaArgs {
  SchemaFormat format = SchemaFormat::text;

  void describe(Command& c);
};

struct ConfigInitArgs {
  std::string file;

  void describe(Command& c);
};

/// Prints the resolved configuration as YAML.
ExitCode config_show(const ConfigShowArgs& args);
/// Throws one ConfigError for all that is wrong in any of the configurations.
ExitCode config_check(const ConfigCheckArgs& args);
/// Prints all options.
ExitCode config_schema(const ConfigSchemaArgs& args);
/// Writes a commented configuration to start from; never over an existing file.
ExitCode config_init(const ConfigInitArgs& args);

/// The reference of all options in the given format; docs/config.md is the Markdown.
std::string schema_document(SchemaFormat format);
/// What config_init writes.
std::string starter_document();

}  // namespace chiron::cli
