#include "train/run_state.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/files.h"
#include "base/json_file.h"
#include "comm/together.h"
#include "io/checkpoint.h"
#include "train/hf_model.h"
#include "train/layout.h"
#include "train/weights.h"

namespace chiron {
namespace {

/// What to do about a damaged checkpoint is the user's choice: going back steps is not silently done.
Checkpoint open_newest(const std::string& path, const Communicator& world) {
  try {
    return Checkpoint(path, world.rank(), world.size());
  } catch (const DataError& e) {
    throw DataError("{}\nmove {} out of the way to go on from the checkpoint before it, or put a good copy there",
                    e.what(), path);
  }
}

/// Names of all ranks' parts.
std::vector<std::string> all_names(const SaveContents& mine, Communicator& world, Stream& s) {
  std::string text;
  for (const auto* parts : {&mine.model, &mine.optimizer})
    for (const StatePart& part : *parts) text += part.name + "\n";
  std::vector<std::string> names;
  for (const std::string& of_rank : gather_texts(world, s, text))
    for (size_t from = 0, to; (to = of_rank.find('\n', from)) != std::string::npos; from = to + 1)
      names.push_back(of_rank.substr(from, to - from));
  return names;
}

void refuse_other_data(const JsonObject& state, const Sources& sources, const std::string& path) {
  if (state.text("vocabulary_hash") != sources.vocabulary_hash())
    throw DataError("{}: the run was trained with another vocabulary than that of {}", path, sources.train->name());
  if (state.text("data") != sources.train->fingerprint())
    throw DataError(
        "{}: the run was trained on other data than what {} holds now; put that back, or start anew with "
        "--fresh",
        path, sources.train->name());
}

/// DataError if model.from brings a tokenizer, and the data was made with another.
void refuse_other_tokenizer(const std::string& folder, const Sources& sources, Log& log) {
  const std::string file = folder + "/tokenizer.json";
  if (!sources.tokenizer || !file_exists(file)) return;
  std::string hash;
  try {
    hash = open_tokenizer(file)->hash();
  } catch (const DataError& e) {
    log.warning("cannot tell whether the data was made with the model's tokenizer: {}", e.what());
    return;
  }
  if (hash != sources.tokenizer->hash())
    throw DataError(
        "{}: its tokens were made with another tokenizer than the model's; make them with `chiron prepare "
        "--tokenizer {}`",
        sources.train->name(), file);
}

}  // namespace

SaveContents state_tensors(ParamStore& params) {
  return {.model = weight_parts(params, Which::mine), .optimizer = moment_parts(params, Which::mine)};
}

nlohmann::json state_json(const Counters& counters, const StepScalars& scalars, const Options& options,
                          const Sources& sources, int ranks) {
  return {{"step", counters.step},
          {"applied_steps", scalars.applied},
          {"skipped_steps", counters.skipped},
          {"skipped_in_a_row", counters.skipped_in_a_row},
          {"overflowed_steps", counters.overflowed},
          {"loss_scale", scalars.loss_scale},
          {"loss_scale_good_steps", scalars.good_steps},
          {"tokens", counters.step * sequences_per_step(options) * options.training.seq_len},
          {"seed", options.training.seed},
          {"options", fingerprint(options)},
          {"vocabulary_hash", sources.vocabulary_hash()},
          {"data", sources.train->fingerprint()},
          {"ranks", ranks}};
}

std::optional<CheckpointInfo> find_newest(const std::string& dir, Communicator& world, Stream& s, Log& log) {
  std::string found;
  together(world, s, [&] {
    if (world.rank() != 0) return;
    std::vector<std::string> skipped;
    const auto newest = newest_checkpoint(dir, &skipped);
    for (const std::string& reason : skipped) log.warning("passed over {}", reason);
    if (newest) found = fmt::format("{} {}", newest->step, newest->path);
    if (!newest && !skipped.empty())
      throw DataError(
          "{}: no whole checkpoint is left to go on from:\n  {}\nput a good copy there, or start anew with --fresh",
          dir, fmt::join(skipped, "\n  "));
  });
  found = gather_texts(world, s, found)[0];  // a slow file system may show another rank an older one
  if (found.empty()) return std::nullopt;
  return CheckpointInfo{found.substr(found.find(' ') + 1), std::stoll(found)};
}

void load_state(const CheckpointInfo& from, Communicator& world, Stream& s, ParamStore& params, const Sources& sources,
                Counters& counters, StepScalars& scalars) {
  const SaveContents tensors{.model = weight_parts(params), .optimizer = moment_parts(params)};
  const std::vector<std::string> names = all_names(tensors, world, s);
  together(world, s, [&] {
    const Checkpoint checkpoint = open_newest(from.path, world);
    load_constants(s, params);
    checkpoint.check_names(names);
    const Staging staging(s);
    for (const auto* parts : {&tensors.model, &tensors.optimizer})
      for (const StatePart& part : *parts) checkpoint.read(part, staging);

    const JsonObject state(checkpoint.state(), from.path + "/trainer_state.json");
    refuse_other_data(state, sources, from.path);
    // Checkpoints of before there was a loss scale lack what belongs to it.
    counters = {state.integer("step"), state.integer("skipped_steps"), state.integer("skipped_in_a_row"),
                state.integer("overflowed_steps", 0)};
    scalars.applied = state.integer("applied_steps");
    scalars.loss_scale = static_cast<float>(state.number("loss_scale", static_cast<double>(scalars.loss_scale)));
    scalars.good_steps = static_cast<int32_t>(state.integer("loss_scale_good_steps", 0));
  });
  params.refresh(s);
}

void first_weights(Stream& s, const Options& options, const Model& model, ParamStore& params, const Sources& sources,
                   Log& log) {
  const std::string& folder = options.model.from;
  if (folder.empty()) return initialize(s, params, static_cast<uint64_t>(options.training.seed));
  refuse_other_tokenizer(folder, sources, log);
  load_hf_weights(s, model, params, HfFolder(folder));
  if (!weights_are_finite(Staging(s), params))
    throw DataError("{}: some of its weights are not finite; no training can start from them", folder);
  log.info("starting from {}", folder);
}

}  // namespace chiron
