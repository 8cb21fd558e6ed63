// Models in Hugging Face's layout, from elsewhere and back: the right model, or an error that names what is wrong.

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error_testing.h"
#include "base/temp_dir.h"
#include "io/safetensors.h"
#include "support/drawn_model.h"
#include "support/program.h"
#include "train/export.h"
#include "train/hf_model.h"

namespace chiron::tests {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// All options of a model.
std::string text_of(ModelConfig c) { return Schema(c).dump(); }

struct HfModel : testing::Test {
  Family family;
  TempDir dir;
  ThreadPool pool{1};
  Stream s{{}, pool};
  Log log{LogLevel::error};
  SavedModel m;
  json config;
  std::vector<StatePart> parts;

  explicit HfModel(Family f) : family(f) { use(small_config(family)); }
  void use(const ModelConfig& c) {
    m = drawn_model(s, c);
    config = m.model->hf_config();
    parts = weight_parts(*m.params);
  }
  bool gpt2() const { return family == Family::gpt2; }
  std::string path() const { return dir / "model"; }
  void write(const HfWriteOptions& options = {}) {
    remove_tree(path());
    write_hf_folder(path(), config, json::object(), parts, options);
  }
  SavedModel open() { return open_model(s, path(), {}, log); }
  std::vector<std::string> remarks() {
    std::vector<std::string> lines;
    hf_model_config(HfFolder(path()), lines);
    return lines;
  }
  template <class... Parts>
  void expect_refused(const std::string& what, const Parts&... named) {
    try {
      open();
      ADD_FAILURE() << what << ": no error";
    } catch (const DataError& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr(path()), HasSubstr(named)...)) << what;
    }
  }
  /// One change of config.json, which is then as it was.
  template <class... Parts>
  void expect_config_refused(const std::string& key, const json& value, const Parts&... named) {
    const json before = config;
    if (value.is_discarded())
      config.erase(key);
    else
      config[key] = value;
    write();
    expect_refused(key, "config.json", named...);
    config = before;
  }
};

struct HfModels : HfModel, testing::WithParamInterface<Family> {
  HfModels() : HfModel(GetParam()) {}
};
struct HfGpt2 : HfModel {
  HfGpt2() : HfModel(Family::gpt2) {}
};
struct HfLlama : HfModel {
  HfLlama() : HfModel(Family::llama) {}
};

std::string name_of(const testing::TestParamInfo<Family>& info) {
  return info.param == Family::gpt2 ? "gpt2" : "llama";
}
INSTANTIATE_TEST_SUITE_P(Families, HfModels, testing::Values(Family::gpt2, Family::llama), name_of);

const json kAbsent(json::value_t::discarded);

TEST_P(HfModels, ExportAndBackAreTheSameBits) {
  for (bool tied : {true, false})
    for (bool biases : {false, true}) {
      ModelConfig c = small_config(family);
      c.tie_embeddings = tied;
      if (!gpt2()) {
        c.attention_bias = c.mlp_bias = biases;
        c.rope = {.theta = 5e5,
                  .scaling = RopeType::llama3,
                  .factor = 8,
                  .low_freq_factor = 1,
                  .high_freq_factor = 4,
                  .original_max_seq_len = 20};
        c.head_dim = 8;
      } else if (biases) {
        c.activation = MlpActivation::gelu_erf;
      }
      use(c);
      const std::string to = dir / fmt::format("export-{}-{}", tied, biases);
      export_model(m, to);
      SavedModel back = open_model(s, to, {}, log);
      EXPECT_EQ(weights_of(back), weights_of(m));
      EXPECT_EQ(text_of(back.model->config()), text_of(c));
      json file = json::parse(read_file(to + "/config.json"));
      EXPECT_EQ(file["tie_word_embeddings"], tied);
      EXPECT_THROW(export_model(m, to), ConfigError) << "nothing is overwritten";
    }
}

TEST_P(HfModels, NarrowTypesAndSeveralFiles) {
  const auto all = weights_of(m);
  for (auto [type, digits] : {std::pair{DType::bf16, 0x1p-8f}, std::pair{DType::f16, 0x1p-11f}}) {
    write({.as = type, .max_file_bytes = 5000});
    EXPECT_TRUE(file_exists(path() + "/model.safetensors.index.json"));
    const auto got = weights_of(open());
    ASSERT_EQ(got.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) ASSERT_NEAR(got[i], all[i], std::abs(all[i]) * digits + 1e-7f);
  }
  write({.max_file_bytes = 5000});
  EXPECT_EQ(weights_of(open()), all);
  const std::string index = path() + "/model.safetensors.index.json";
  json file = json::parse(read_file(index));
  const std::string name = file["weight_map"].begin().key();
  file["weight_map"][name] = "model-00009-of-00009.safetensors";
  write_file(index, file.dump());
  expect_refused("a file that is not there", "model-00009-of-00009.safetensors");
}

TEST_P(HfModels, ConfigsThatCannotBeAreRefusedByName) {
  expect_config_refused("model_type", "mamba", "model_type \"mamba\"", "gpt2, llama");
  expect_config_refused("model_type", kAbsent, "model_type is missing");
  expect_config_refused("architectures", json{"GPTNeoXForCausalLM"}, "architectures = GPTNeoXForCausalLM");
  expect_config_refused("vocab_size", "many", "vocab_size is \"many\"", "an integer");
  expect_config_refused("quantization_config", json{{"quant_method", "fp8"}}, "quantization_config is not supported");
  expect_config_refused("sliding_window", 4096, "sliding_window is not supported");
  config["sliding_window"] = config["quantization_config"] = nullptr;
  write();
  EXPECT_EQ(weights_of(open()), weights_of(m));
  expect_config_refused("vocab_size", 67.5, "vocab_size is 67.5", "an integer");
  const char *eps = gpt2() ? "layer_norm_epsilon" : "rms_norm_eps", *drop = gpt2() ? "attn_pdrop" : "attention_dropout";
  expect_config_refused(eps, 1e-300, fmt::format("config.json: {}: 1e-300", eps));
  expect_config_refused(drop, 0.99999999999, fmt::format("config.json: {}: 0.99999999999 is 1", drop));
  if (gpt2()) {
    expect_config_refused("activation_function", "relu", "activation_function = relu", "gelu_new");
    expect_config_refused("n_head", 5, "config.json: n_head 5 does not divide n_embd 24");
    expect_config_refused("n_head", json{4}, "n_head is [4]");
    expect_config_refused("scale_attn_by_inverse_layer_idx", true, "scale_attn_by_inverse_layer_idx");
    expect_config_refused("layer_norm_epsilon", "small", "layer_norm_epsilon is \"small\"", "a number");
    expect_config_refused("tie_word_embeddings", 1, "tie_word_embeddings is 1", "true or false");
    return;
  }
  expect_config_refused("hidden_size", kAbsent, "hidden_size is missing");
  expect_config_refused("num_hidden_layers", kAbsent, "num_hidden_layers is missing");
  expect_config_refused("rope_theta", 1e-300, "config.json: rope_theta: 1e-300");
  expect_config_refused("hidden_act", "gelu", "hidden_act = gelu", "silu");
  expect_config_refused("num_key_value_heads", 3,
                        "config.json: num_key_value_heads 3 does not divide num_attention_heads 4");
  expect_config_refused("head_dim", 7, "config.json: head_dim is 7 (hidden_size / num_attention_heads unless given)");
  expect_config_refused("rope_scaling", json{{"rope_type", "linear"}, {"factor", 0.5}}, "rope_scaling.factor: 0.5");
  expect_config_refused("rope_parameters", json{{"rope_type", "linear"}, {"factor", 0.5}},
                        "rope_parameters.factor: 0.5");
  expect_config_refused("rope_scaling", json{{"rope_type", "linear"}, {"type", "llama3"}, {"factor", 2}},
                        "rope_scaling: type is llama3 and rope_type linear");
  const json each = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
                     {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    expect_config_refused(key, each, fmt::format("{}.full_attention is not supported", key), "rope_type");
    expect_config_refused(key, json{{"rope_type", "default"}, {"attention_factor", 1.2}}, "attention_factor");
  }
  for (const char* type : {"yarn", "dynamic", "longrope"}) {
    expect_config_refused("rope_scaling", json{{"rope_type", type}, {"factor", 2.0}}, type, "default, linear, llama3");
    expect_config_refused("rope_scaling", json{{"type", type}, {"factor", 2.0}}, type, "default, linear, llama3");
    expect_config_refused("rope_parameters", json{{"rope_type", type}, {"rope_theta", 1e4}}, type);
  }
  expect_config_refused("partial_rotary_factor", 0.5, "partial_rotary_factor = 0.5", "supported: 1");
  const json rope = {{"rope_type", "default"}, {"rope_theta", 1e4}, {"partial_rotary_factor", 0.25}};
  expect_config_refused("rope_parameters", rope, "partial_rotary_factor = 0.25");
  config["rope_theta"] = 1e4;
  expect_config_refused("rope_parameters", json{{"rope_type", "default"}, {"rope_theta", 5e5}}, "rope_theta is 10000",
                        "in rope_parameters it is 500000");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  write();
  EXPECT_EQ(weights_of(open()), weights_of(m)) << "twice the same is no contradiction";
  expect_config_refused("rope_scaling", json{{"rope_type", "linear"}, {"factor", 2.0}}, "rope_parameters",
                        "rope_scaling");
  config.erase("rope_parameters");
  expect_config_refused("rope_scaling", json{{"rope_type", "linear"}}, "rope_scaling.factor is missing");
  expect_config_refused("rope_scaling", "linear", "rope_scaling is \"linear\"", "an object");
  expect_config_refused("rope_scaling", json{{"rope_type", "llama3"}, {"factor", 2}}, "rope_scaling.low_freq_factor");
}

TEST_P(HfModels, SizesThatAreNoneAreRefused) {
  for (const char* key : gpt2()
                             ? std::vector<const char*>{"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"}
                             : std::vector<const char*>{"num_hidden_layers", "num_attention_heads", "hidden_size",
                                                        "max_position_embeddings", "vocab_size", "intermediate_size"})
    for (int64_t bad : {int64_t{0}, int64_t{-4}, int64_t{1} << 60}) expect_config_refused(key, bad);
}

TEST_P(HfModels, BothSpellingsOfTheConfigAreTheSameModel) {
  const ModelConfig want = m.model->config();
  if (gpt2()) {
    for (auto [old, now] :
         {std::pair{"n_embd", "hidden_size"}, std::pair{"n_layer", "num_hidden_layers"},
          std::pair{"n_head", "num_attention_heads"}, std::pair{"n_positions", "max_position_embeddings"}}) {
      config[now] = config[old];
      config.erase(old);
    }
  } else {
    config["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 5e5},
                                 {"factor", 8.0},           {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 20}};
    config.erase("rope_scaling");
    config.erase("rope_theta");
  }
  config["dtype"] = "float32";
  write();
  const ModelConfig got = open().model->config();
  if (gpt2()) {
    EXPECT_EQ(text_of(got), text_of(want));
    return;
  }
  json old = config;
  old.erase("rope_parameters");
  old["rope_theta"] = 5e5;
  old["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 20}};
  config = old;
  write();
  EXPECT_EQ(text_of(open().model->config()), text_of(got));
  EXPECT_EQ(got.rope.scaling, RopeType::llama3);
  EXPECT_EQ(got.rope.theta, 5e5);
}

TEST_P(HfModels, MissingAndUnexpectedTensorsAreListed) {
  const auto all = parts;
  const std::string norm = gpt2() ? "transformer.h.1.ln_2.bias" : "model.layers.1.post_attention_layernorm.weight";
  std::erase_if(parts, [&](const StatePart& p) { return p.name == norm; });
  write();
  expect_refused("a missing tensor", "lacks tensors", norm);
  parts = all;
  StatePart extra = parts.back();
  extra.name = "model.layers.0.self_attn.q_norm.weight";
  parts.push_back(extra);
  write();
  expect_refused("an extra tensor", "no place for", extra.name);
  // What is no weight may lie there.
  parts.back().name = gpt2() ? "transformer.h.0.attn.bias" : "model.layers.0.self_attn.rotary_emb.inv_freq";
  write();
  EXPECT_EQ(weights_of(open()), weights_of(m));
  // More layers than config.json says, and fewer.
  parts = all;
  const char* layers = gpt2() ? "n_layer" : "num_hidden_layers";
  config[layers] = 1;
  write();
  expect_refused("a layer too many", "no place for", norm.substr(0, norm.find(".1.") + 3));
  config[layers] = 3;
  write();
  expect_refused("a layer too few", "lacks tensors", ".2.");
  config[layers] = 2;
  config["vocab_size"] = 68;
  write();
  expect_refused("another shape", gpt2() ? "wte.weight" : "embed_tokens.weight", "67", "68");
}

TEST_P(HfModels, TheFlagOfATiedHeadAndWhatIsStoredMayDisagree) {
  // The head is stored and says the same as the flag, or there is none.
  ModelConfig c = small_config(family);
  c.tie_embeddings = false;
  use(c);
  write();
  EXPECT_THAT(remarks(), ElementsAre());
  config["tie_word_embeddings"] = true;
  write();
  EXPECT_THAT(remarks(), ElementsAre(AllOf(HasSubstr("tie_word_embeddings is true"), HasSubstr("both are kept"))));
  EXPECT_EQ(weights_of(open()), weights_of(m));
  // A second copy of the embedding is tied.
  std::erase_if(parts, [](const StatePart& p) { return p.name == "lm_head.weight"; });
  StatePart copy = parts.front();
  ASSERT_THAT(copy.name, HasSubstr(gpt2() ? "wte" : "embed_tokens"));
  copy.name = "lm_head.weight";
  parts.push_back(copy);
  write();
  EXPECT_THAT(remarks(), ElementsAre());
  EXPECT_TRUE(open().model->config().tie_embeddings);
  // None, though the flag says there should be one.
  parts.pop_back();
  config["tie_word_embeddings"] = false;
  write();
  EXPECT_THAT(remarks(),
              ElementsAre(AllOf(HasSubstr("tie_word_embeddings is false"), HasSubstr("tied to the embedding"))));
  EXPECT_TRUE(open().model->config().tie_embeddings);
}

TEST_F(HfGpt2, NamesComeWithAndWithoutPrefix) {
  for (StatePart& p : parts)
    if (p.name.starts_with("transformer.")) p.name.erase(0, 12);
  write();
  EXPECT_EQ(weights_of(open()), weights_of(m));
  parts.push_back(parts.front());
  parts.back().name = "transformer." + parts.front().name;
  write();
  expect_refused("both spellings", "wte.weight");
}

TEST_F(HfLlama, ASlidingWindowIsKeptAndNotExported) {
  write_file(dir / "c.yaml", R"(
model: {family: llama, num_layers: 1, d_model: 16, num_heads: 2, vocab_size: 32, sliding_window: 3}
training: {batch_size: 2, seq_len: 12, max_steps: 1, eval_every: 0}
data: {synthetic: true}
run: {threads: 1}
)");
  ASSERT_EQ(chiron(dir.path(), {"train", dir / "c.yaml", "--out", dir / "run"}).code, 0);
  EXPECT_EQ(open_model(s, dir / "run", {}, log).model->config().sliding_window, 3);
  Outcome o = chiron(dir.path(), {"export", dir / "run", "--to", dir / "exported"});
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("model.sliding_window: 3"));
  EXPECT_FALSE(directory_exists(dir / "exported"));
}

TEST_P(HfModels, TrainFromAFolderAndExportTheRun) {
  write();
  write_file(dir / "c.yaml", "model: {from: " + path() + "}\n" + R"(
training: {batch_size: 2, seq_len: 12, max_steps: 2, learning_rate: 1e-3, warmup_steps: 0, eval_every: 0}
data: {synthetic: true}
run: {threads: 1}
)");
  const Words train = {"train", dir / "c.yaml", "--out", dir / "run"};
  Outcome o = chiron(dir.path(), train);
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("starting from " + path()));
  o = chiron(dir.path(), {"export", dir / "run", "--to", dir / "exported"});
  ASSERT_EQ(o.code, 0) << o.text;
  SavedModel run = open_model(s, dir / "run", {}, log), exported = open_model(s, dir / "exported", {}, log);
  const auto got = weights_of(exported), before = weights_of(m);
  EXPECT_EQ(got, weights_of(run)) << "bitwise";
  ASSERT_EQ(got.size(), before.size());
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) most = std::max(most, static_cast<double>(std::abs(got[i] - before[i])));
  EXPECT_GT(most, 1e-4);
  EXPECT_LT(most, 3e-3) << "two steps away from where it came";
  // What config.json says may be repeated, not contradicted.
  o = chiron(dir.path(), train + Words{"--fresh", "--set", "model.num_layers=2"});
  EXPECT_EQ(o.code, 0) << o.text;
  o = chiron(dir.path(), train + Words{"--fresh", "--set", "model.num_layers=3"});
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("model.num_layers"), HasSubstr(path())));
  o = chiron(dir.path(), train + Words{"--fresh", "--set", "training.seq_len=41"});
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("41"));
}

TEST_P(HfModels, ARunGoesOnWithoutTheFolderThatItStartedFrom) {
  write();
  write_file(dir / "c.yaml", "model: {from: " + path() + "}\n" + R"(
training: {batch_size: 2, seq_len: 12, max_steps: 2, eval_every: 0}
data: {synthetic: true}
run: {threads: 1}
)");
  const Words train = {"train", dir / "c.yaml", "--out", dir / "run"}, longer = {"--set", "training.max_steps=4"};
  ASSERT_EQ(chiron(dir.path(), train).code, 0);
  remove_tree(path());
  Outcome o = chiron(dir.path(), train + longer);
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_EQ(newest_checkpoint(dir / "run/checkpoints")->step, 4);
  o = chiron(dir.path(), train + Words{"--set", "model.num_layers=3"});
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("model.num_layers: 3"), HasSubstr("run/config.yaml, which says 2")));
  o = chiron(dir.path(), train + Words{"--set", "model.from=" + dir / "another"});
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("model.from: "));
  for (const Words& fresh : {Words{"--fresh"}, Words{"--out", dir / "new"}}) {
    Words words = train;
    if (fresh.size() > 1) words.resize(2);
    o = chiron(dir.path(), words + fresh);
    EXPECT_EQ(o.code, 3) << o.text;
    EXPECT_THAT(o.text, HasSubstr(path()));
  }
}

TEST_P(HfModels, AnExportNeedsAFolderOfItsOwnName) {
  make_directories(dir / "real");
  std::filesystem::create_symlink(dir / "real", dir / "link");
  for (const std::string& to : {dir / "link", dir / "real/."})
    EXPECT_THAT(message_of<ConfigError>([&] { export_model(m, to); }), HasSubstr("name it by its own path, "));
  EXPECT_THAT(list_directory(dir.path()), testing::UnorderedElementsAre("real", "link"));
}

TEST_P(HfModels, AnInfiniteWeightStopsTheRunWithoutHarm) {
  write();
  write_file(dir / "c.yaml", "model: {from: " + path() + "}\n" + R"(
training: {batch_size: 2, seq_len: 12, max_steps: 1, max_skipped_steps: 3, eval_every: 0}
data: {synthetic: true}
checkpoint: {every: 1}
run: {threads: 1}
)");
  const Words train = {"train", dir / "c.yaml", "--out", dir / "run"}, more = {"--set", "training.max_steps=9"};
  ASSERT_EQ(chiron(dir.path(), train).code, 0);
  // As if a step had brought it about.
  const std::string checkpoints = dir / "run/checkpoints", saved = newest_checkpoint(checkpoints)->path;
  {
    const Checkpoint checkpoint(saved);
    SavedModel run = open_model(s, saved, {.training = true}, log);
    auto weights = weight_parts(*run.params), moments = moment_parts(*run.params);
    run.params->owned()[3].master.data<float>()[1] = std::numeric_limits<float>::infinity();
    save_checkpoint(checkpoints, 1, weights, moments, checkpoint.state(),
                    {{"config.json", checkpoint.extra("config.json")}});
  }
  // Such weights are never saved.
  Outcome o = chiron(dir.path(), train + more);
  EXPECT_EQ(o.code, 7) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("step 2 was skipped"), HasSubstr("some weights are not finite")));
  EXPECT_EQ(newest_checkpoint(checkpoints)->step, 1);
  auto lines = metrics_of(dir / "run");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["finite"], false);
  // And no update is tried with them for ever.
  o = chiron(dir.path(), train + more + Words{"--set", "checkpoint.every=0"});
  EXPECT_EQ(o.code, 7) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("step 2 was skipped"), HasSubstr("3 steps in a row"),
                            HasSubstr("training.max_skipped_steps"), HasSubstr("those of step 1")));
}

TEST_P(HfModels, NoRunStartsFromWeightsThatAreNotFinite) {
  m.params->owned()[3].master.data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  write();
  write_file(dir / "c.yaml", "model: {from: " + path() + "}\n" + R"(
training: {batch_size: 2, seq_len: 12, max_steps: 1, eval_every: 0}
data: {synthetic: true}
run: {threads: 1}
)");
  Outcome o = chiron(dir.path(), {"train", dir / "c.yaml", "--out", dir / "run"});
  EXPECT_EQ(o.code, 3) << o.text;
  EXPECT_THAT(o.text, HasSubstr(path() + ": some of its weights are not finite"));
}

TEST_P(HfModels, TheProgramSaysItWithExitCode3) {
  config["model_type"] = "mamba";
  write();
  for (const Words& words : {Words{"generate", path(), "--prompt-ids", "1"}, Words{"export", path(), "--to", dir / "x"},
                             Words{"check", path(), "--against", dir / "y"}}) {
    Outcome o = chiron(dir.path(), words);
    EXPECT_EQ(o.code, 3) << o.text;
    EXPECT_THAT(o.text, HasSubstr("mamba"));
  }
}

}  // namespace
}  // namespace chiron::tests
