#include "train/options.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/files.h"
#include "base/temp_dir.h"

namespace chiron {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class OptionsTest : public testing::Test {
 protected:
  Options load(const std::string& text, const std::vector<std::string>& sets = {}) {
    write_file(file_, text);
    return load_options(file_, sets);
  }
  std::string error_of(const std::string& text, const std::vector<std::string>& sets = {}) {
    try {
      load(text, sets);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "no error";
  }
  TempDir dir_;
  std::string file_ = dir_ / "some_run.yaml";
};

const std::string kData = "data: {synthetic: true}\n";

/// Another value than the default for each option, as YAML.
std::string other_value(const Option& option, const std::string& now) {
  if (option.key() == "activations") return "{keep: [qkv, x2]}";
  if (option.key() == "parallel.zero") return "3";
  std::string allowed = option.allowed();
  if (allowed == "true or false") return now == "true" ? "false" : "true";
  if (allowed == "a string") return "\"a: b\"";
  if (allowed.starts_with("a string or")) return "[a, \"b c\"]";
  if (allowed.starts_with("one of ")) {
    std::string last = allowed.substr(allowed.rfind(' ') + 1);
    return last == now ? allowed.substr(7, allowed.find(',') - 7) : last;
  }
  if (allowed.starts_with("a whole number")) return now == "7" ? "8" : "7";
  return now == "0.5" ? "0.625" : option.key() == "model.rope.factor" ? "2.5" : "0.5";
}

TEST_F(OptionsTest, EveryOptionRoundTrips) {
  Options reference;
  Schema schema(reference);
  for (const auto& option : schema.options()) {
    std::string value = other_value(*option, option->yaml());
    Options given;
    Schema from_set(given);
    from_set.set(option->key() + "=" + (option->allowed() == "a string" ? "a: b" : value));
    EXPECT_EQ(from_set.find(option->key())->yaml(), value);
    EXPECT_NE(from_set.dump(), schema.dump()) << option->key();
    Options read;
    Schema from_dump(read);
    from_dump.read(parse_yaml(from_set.dump(), "f"));
    EXPECT_EQ(from_dump.dump(), from_set.dump()) << option->key();
    bool may_change = option->may_change();
    EXPECT_EQ(differences(reference, given).empty(), may_change) << option->key();
    EXPECT_EQ(fingerprint(reference) == fingerprint(given), may_change) << option->key();
  }
}

TEST_F(OptionsTest, WhatMayChangeOnResume) {
  Options o;
  std::vector<std::string> keys;
  Schema schema(o);
  for (const auto& option : schema.options()) {
    if (option->may_change()) keys.push_back(option->key());
  }
  EXPECT_THAT(keys, ElementsAre("training.max_steps", "training.max_skipped_steps", "training.eval_every",
                                "training.eval_batches", "data.validation", "parallel.auto", "parallel.dp",
                                "parallel.zero", "parallel.zero_group", "parallel.tp", "parallel.sequence",
                                "parallel.cp", "parallel.pp", "parallel.schedule", "parallel.chunks",
                                "parallel.timeout", "checkpoint.every", "checkpoint.keep_last", "checkpoint.on_exit",
                                "checkpoint.async", "checkpoint.writers", "run.dir", "run.device", "run.graphs",
                                "run.threads", "logging.level", "logging.every", "activations"));
}

TEST_F(OptionsTest, LoadsResolvesAndDumps) {
  Options o = load("model: {family: llama, num_heads: 6}\ntraining:\n  seq_len: 32\n  learning_rate: 1e-4\n" + kData,
                   {"training.max_steps=2k", "training.max_steps=3k"});
  EXPECT_EQ(o.training.learning_rate, 1e-4);
  EXPECT_EQ(o.training.max_steps, 3000);
  EXPECT_EQ(o.model.max_seq_len, 32);
  EXPECT_EQ(o.model.d_ff, 1024);
  EXPECT_EQ(o.run.dir, "runs/some_run");
  EXPECT_FALSE(o.model_pending);
  std::string text = to_yaml(o);
  std::string copy = dir_ / "copy.yaml";
  write_file(copy, text);
  EXPECT_EQ(to_yaml(load_options(copy)), text) << "a resolved configuration is a configuration";
  EXPECT_EQ(to_yaml(read_resolved(copy)), text);
  EXPECT_TRUE(differences(o, read_resolved(copy)).empty());
}

TEST_F(OptionsTest, DumpsOfBothFamiliesLoad) {
  for (const char* family : {"gpt2", "llama"}) {
    std::string text = to_yaml(load(fmt::format("model: {{family: {}}}\n{}", family, kData)));
    EXPECT_EQ(to_yaml(load(text)), text) << family;
  }
}

TEST_F(OptionsTest, UnknownGroupsAndKeysAreRefused) {
  EXPECT_THAT(error_of("trainig:\n  seed: 1\n"),
              HasSubstr("some_run.yaml:1:1: there is no option trainig; did you mean training?"));
  EXPECT_THAT(error_of("cluster: {}\n"),
              HasSubstr("takes model, training, data, parallel, checkpoint, run, logging, activations"));
  EXPECT_THAT(error_of("batch_size: 8\n"), HasSubstr("did you mean training.batch_size?"));
  EXPECT_THAT(error_of("training:\n  bacth_size: 8\n"), StartsWith(file_ + ":2:3: "));
  EXPECT_THAT(error_of("model:\n  rope: {thet: 8}\n"), HasSubstr("model.rope.thet; did you mean theta?"));
  EXPECT_THAT(error_of(kData, {"training.bacth_size=8"}), HasSubstr("did you mean batch_size?"));
}

TEST_F(OptionsTest, TrapsOfYaml) {
  EXPECT_THAT(error_of("training:\n  max_steps: 010\n"), StartsWith(file_ + ":2:14: training.max_steps: 010"));
  EXPECT_THAT(error_of("training:\n  max_steps: 1_000\n"), HasSubstr("write 1000"));
  EXPECT_THAT(error_of("training:\n  max_steps: 1e3\n"), HasSubstr("write 1000"));
  EXPECT_THAT(error_of("training:\n  use_amp: yes\n"), StartsWith(file_ + ":2:12: training.use_amp: yes"));
  EXPECT_THAT(error_of("training:\n  seed: 1\n  seed: 2\n"), StartsWith(file_ + ":3:3: duplicate key seed"));
  EXPECT_THAT(error_of("training:\n  learning_rate: \"1e-4\"\n"), HasSubstr("in quotes"));
  EXPECT_THAT(error_of("training:\n  learning_rate: .inf\n"), HasSubstr("no number"));
}

TEST_F(OptionsTest, ContradictionsAreRefused) {
  EXPECT_THAT(error_of(""), HasSubstr("data.train is empty"));
  EXPECT_THAT(error_of("data: {synthetic: true, train: x}\n"), HasSubstr("data.train names x"));
  EXPECT_THAT(error_of("data: {synthetic: true, validation: x}\n"), HasSubstr("data.validation names x"));
  EXPECT_THAT(error_of("data: {train: [x, x]}\n"), HasSubstr("x stands twice"));
  EXPECT_THAT(error_of("data: {train: [\"\"]}\n"), HasSubstr("an empty string is no folder"));
  EXPECT_THAT(error_of(kData + "model: {max_seq_len: 128}\n"),
              HasSubstr("training.seq_len is 256 and model.max_seq_len 128"));
  EXPECT_THAT(error_of(kData + "model: {num_heads: 5}\n"), HasSubstr("does not divide model.d_model 384"));
  EXPECT_THAT(error_of(kData + "training: {lr_schedule: wsd, decay_steps: 2k}\n"),
              HasSubstr("training.decay_steps is 2000 and training.max_steps 1000"));
  EXPECT_THAT(error_of(kData + "training: {batch_size: 1M, seq_len: 1M}\n"), HasSubstr("at most 2147483647 tokens"));
  EXPECT_THAT(error_of(kData + "model: {attention_bias: false}\n"),
              HasSubstr(":2:25: model.attention_bias: false: gpt2 always has biases"));
  EXPECT_THAT(error_of(kData + "model: {rope: {theta: 5}}\n"), HasSubstr("model.rope.theta: gpt2 has learned"));
}

TEST_F(OptionsTest, WhatFloat32CannotHoldIsRefused) {
  for (const char* set :
       {"model.dropout=0.999999999999", "model.attention_dropout=0.99999999999", "training.label_smoothing=0.99999999",
        "model.norm_eps=1e-300", "model.norm_eps=1e-30", "model.norm_eps=0.9999999999", "model.rope.theta=1e-300",
        "model.rope.theta=1e300", "model.init_std=1e-300", "training.eps=1e-300", "training.eps=1e-40",
        "training.beta1=0.999999999999", "training.beta2=0.99999999", "training.beta2=0.9999999",
        "training.weight_decay=1e-39", "training.learning_rate=1e-50", "training.gradient_clip_norm=1e39"}) {
    const std::string key = std::string(set).substr(0, std::string(set).find('='));
    EXPECT_THAT(error_of("model: {family: llama}\n" + kData, {set}),
                AllOf(HasSubstr(key + ": "), HasSubstr("allowed: ")))
        << set;
  }
  EXPECT_THAT(error_of(kData, {"model.dropout=0.999999999999"}), HasSubstr("0.999999999999 is 1 in float32"));
  EXPECT_THAT(error_of(kData, {"training.weight_decay=1e-39"}), HasSubstr("too small for float32"));
  EXPECT_EQ(error_of(kData, {"model.dropout=0.999", "training.beta2=0.99999", "training.eps=1e-15",
                             "training.weight_decay=0", "training.gradient_clip_norm=1e30"}),
            "no error");
  EXPECT_THAT(error_of(kData, {"model.family=llama", "model.rope.scaling=llama3", "model.rope.factor=8",
                               "model.rope.high_freq_factor=1.00000000001"}),
              HasSubstr("the low one must be the smaller"));
}

TEST_F(OptionsTest, Float16NeedsAGpu) {
  const auto float16_on = [](const char* device) {
    return std::vector<std::string>{"training.use_amp=true", "training.amp_dtype=float16",
                                    std::string("run.device=") + device};
  };
  EXPECT_THAT(error_of(kData, float16_on("cpu")), AllOf(HasSubstr("training.amp_dtype is float16 and run.device cpu"),
                                                        HasSubstr("needs a GPU"), HasSubstr("bfloat16")));
  EXPECT_EQ(error_of(kData, float16_on("gpu")), "no error");
  // What auto means is known once a device is chosen.
  const Options o = load(kData, float16_on("auto"));
  try {
    refuse_float16(o);
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("run.device auto, which is the CPU here"));
  }
  EXPECT_EQ(error_of(kData, {"training.amp_dtype=float16", "run.device=cpu"}), "no error")
      << "without use_amp it has no say";
  EXPECT_EQ(error_of(kData, {"training.use_amp=true"}), "no error");
}

TEST_F(OptionsTest, LossScaleTakesEveryForm) {
  using Kind = LossScale::Kind;
  EXPECT_EQ(load(kData).training.loss_scale, LossScale{});
  EXPECT_EQ(load(kData, {"training.loss_scale=dynamic"}).training.loss_scale.kind, Kind::dynamic);
  const LossScale fixed = load(kData, {"training.loss_scale=1k"}).training.loss_scale;
  EXPECT_EQ(fixed.kind, Kind::fixed);
  EXPECT_EQ(fixed.value, 1000);
  EXPECT_THAT(error_of(kData, {"training.loss_scale=dynamical"}), HasSubstr("did you mean dynamic?"));
  for (const char* bad : {"0", "-1", "1e-9", "3e7", "inf", "[dynamic]", "'8'"})
    EXPECT_THAT(error_of(kData, {std::string("training.loss_scale=") + bad}),
                AllOf(HasSubstr("training.loss_scale: "), HasSubstr("allowed: auto, dynamic, or a number")))
        << bad;
}

TEST_F(OptionsTest, ActivationsTakeEveryForm) {
  using Kind = Activations::Kind;
  EXPECT_EQ(load(kData).activations.kind, Kind::keep_all);
  EXPECT_EQ(load(kData + "activations: keep_none\n").activations.kind, Kind::keep_none);
  Activations every = load(kData + "activations: {every: 3}\n").activations;
  EXPECT_EQ(every.kind, Kind::every);
  EXPECT_EQ(every.every, 3);
  Activations keep = load(kData + "activations:\n  keep: [qkv, att]\n").activations;
  EXPECT_EQ(keep.kind, Kind::keep);
  EXPECT_THAT(keep.slots, ElementsAre("qkv", "att"));
  EXPECT_EQ(load(kData, {"activations={every: 2}"}).activations.every, 2);

  EXPECT_THAT(error_of("activations: keep_al\n"), HasSubstr("did you mean keep_all?"));
  EXPECT_THAT(error_of("activations: {evry: 2}\n"),
              HasSubstr(":1:15: activations: evry is no choice: did you mean every?"));
  EXPECT_THAT(error_of("activations: {every: 0}\n"), HasSubstr("0 is no whole number >= 1"));
  EXPECT_THAT(error_of("activations: {every: 010}\n"), HasSubstr("leading zero"));
  EXPECT_THAT(error_of("activations: {every: [1]}\n"), HasSubstr("every: a list"));
  EXPECT_THAT(error_of("activations: {every: 1, keep: [a]}\n"), HasSubstr("2 keys"));
  EXPECT_THAT(error_of("activations: {keep: a}\n"), HasSubstr("a list of slots"));
  EXPECT_THAT(error_of("activations: {keep: [a, a]}\n"), HasSubstr("a stands twice"));
  EXPECT_THAT(error_of("activations: [a]\n"), HasSubstr("allowed: keep_all, keep_none"));
  EXPECT_THAT(error_of("activations:\n"), HasSubstr("nothing is no choice"));
}

TEST_F(OptionsTest, AModelFromAFolderMustAgreeWithWhatIsGiven) {
  ModelConfig folder;
  folder.num_layers = 2, folder.d_model = 48, folder.num_heads = 3, folder.vocab_size = 131, folder.max_seq_len = 32;
  resolve(folder);
  const std::string text = "model:\n  from: gpt\n  dropout: 0.25\n";
  const std::string rest = "training: {seq_len: 16}\n" + kData;
  Options o = load(text + rest);
  EXPECT_TRUE(o.model_pending);
  EXPECT_EQ(to_yaml(o).find("num_layers"), std::string::npos) << "nothing is said of a model that is not known";
  Options again = load(to_yaml(o));
  EXPECT_EQ(to_yaml(again), to_yaml(o));

  adopt_model(o, folder, "gpt/config.json");
  EXPECT_FALSE(o.model_pending);
  EXPECT_EQ(o.model.d_model, 48);
  EXPECT_EQ(o.model.dropout, 0.25);
  EXPECT_EQ(o.model.from, "gpt");
  Options full = load(to_yaml(o));
  adopt_model(full, folder, "gpt/config.json");
  EXPECT_EQ(to_yaml(full), to_yaml(o));

  Options wrong = load(text + "  num_layers: 3\n" + rest);
  try {
    adopt_model(wrong, folder, "gpt/config.json");
    FAIL() << "num_layers differs";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(),
                HasSubstr(file_ + ":4:15: model.num_layers: 3 does not agree with gpt/config.json, which says 2"));
  }
  Options lengthy = load(text + kData);
  EXPECT_THROW(adopt_model(lengthy, folder, "gpt/config.json"), ConfigError) << "256 tokens into 32 positions";
}

TEST_F(OptionsTest, RecipesAreGood) {
  auto names = list_directory(CHIRON_SOURCE_DIR "/configs");
  int count = 0;
  for (const std::string& name : names) {
    if (!name.ends_with(".yaml")) continue;
    ++count;
    std::string path = CHIRON_SOURCE_DIR "/configs/" + name;
    EXPECT_NO_THROW(load_options(path)) << name;
    EXPECT_THAT(read_file(path), StartsWith("# ")) << name << " says what it is for";
  }
  EXPECT_GE(count, 6);
  EXPECT_EQ(load_options(CHIRON_SOURCE_DIR "/configs/tiny.yaml").run.dir, "runs/tiny");
}

}  // namespace
}  // namespace chiron
