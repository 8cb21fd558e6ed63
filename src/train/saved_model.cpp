#include "train/saved_model.h"

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "io/checkpoint.h"
#include "parallel/store.h"
#include "train/hf_model.h"
#include "train/options.h"
#include "train/weights.h"

namespace chiron {
namespace {

void allocate(Stream& s, SavedModel& m, SavedModel::Use use) {
  m.params = make_store(s, m.model->params(),
                        {.compute = use.compute, .kind = use.training ? StateKind::training : StateKind::weights});
}

SavedModel open_checkpoint(Stream& s, const std::string& path, SavedModel::Use use) {
  SavedModel m;
  m.dir = path;
  Checkpoint checkpoint(path);
  const std::string file = path + "/config.json";
  ModelConfig config = config_from_hf(JsonObject(parse_json(checkpoint.extra("config.json"), file), file));
  m.model = make_model({.config = config});
  allocate(s, m, use);
  load_constants(s, *m.params);
  const Staging staging(s);
  for (const StatePart& part : weight_parts(*m.params)) checkpoint.read(part, staging);
  m.params->refresh(s);
  if (checkpoint.has_extra("tokenizer.json")) m.tokenizer = open_tokenizer(path);
  return m;
}

SavedModel open_folder(Stream& s, const std::string& path, SavedModel::Use use, Log& log) {
  SavedModel m;
  m.dir = path;
  HfFolder folder(path);
  std::vector<std::string> remarks;
  m.model = make_model({.config = hf_model_config(folder, remarks)});
  for (const std::string& remark : remarks) log.warning("{}", remark);
  allocate(s, m, use);
  load_hf_weights(s, *m.model, *m.params, folder);
  if (file_exists(path + "/tokenizer.json")) m.tokenizer = open_tokenizer(path);
  return m;
}

}  // namespace

SavedModel open_model(Stream& s, const std::string& path, SavedModel::Use use, Log& log) {
  if (!directory_exists(path)) {
    std::string hint;
    try {
      if (path.ends_with(".yaml"))
        hint = fmt::format("; this configuration's run goes to {}", load_options(path).run.dir);
    } catch (const Error&) {  // no configuration
    }
    throw DataError("{}: {}; give a run's folder, or a model's in the layout of Hugging Face{}", path,
                    file_exists(path) ? "is a file" : "no such folder", hint);
  }
  if (file_exists(path + "/COMPLETE")) return open_checkpoint(s, path, use);
  if (directory_exists(path + "/checkpoints")) {
    std::vector<std::string> skipped;
    auto newest = newest_checkpoint(path + "/checkpoints", &skipped);
    for (const std::string& reason : skipped) log.warning("passed over {}", reason);
    if (!newest) throw DataError("{}: the run has no checkpoint yet", path);
    try {
      return open_checkpoint(s, newest->path, use);
    } catch (const Error&) {
      if (directory_exists(newest->path)) throw;
    }
    return open_model(s, path, use, log);  // a newer one has taken its place meanwhile
  }
  if (file_exists(path + "/config.json")) return open_folder(s, path, use, log);
  throw DataError("{}: neither a run (checkpoints/), nor a checkpoint (COMPLETE), nor a model folder (config.json)",
                  path);
}

}  // namespace chiron
