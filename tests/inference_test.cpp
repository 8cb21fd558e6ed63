// Generation and evaluation of saved models.

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "base/numbers.h"
#include "base/temp_dir.h"
#include "data/loader.h"
#include "data/testing.h"
#include "support/drawn_model.h"
#include "support/program.h"
#include "train/evaluate.h"
#include "train/export.h"
#include "train/generate.h"
#include "train/inference.h"

namespace chiron::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<ModelConfig> configs() {
  std::vector<ModelConfig> all = {small_config(Family::gpt2), small_config(Family::llama), small_config(Family::llama)};
  all[2].sliding_window = 7;
  all[2].num_kv_heads = 1;
  all[2].rope = {.scaling = RopeType::linear, .factor = 2};
  return all;
}

struct Inferences : testing::Test {
  ThreadPool pool{1};
  Stream s{{}, pool};

  std::vector<int32_t> text(int64_t n) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(i * i * 5 % 67));
    return ids;
  }
  std::vector<int32_t> generated(const SavedModel& m, std::span<const int32_t> prompt, const Sampling& sampling,
                                 int64_t n) {
    std::vector<int32_t> out;
    generate(s, m, prompt, sampling, n, [&](int32_t id) {
      out.push_back(id);
      return true;
    });
    return out;
  }
};

TEST_F(Inferences, TheCacheGivesWhatAFullPassGives) {
  for (const ModelConfig& c : configs()) {
    SavedModel m = drawn_model(s, c);
    const auto ids = text(33);
    const auto V = static_cast<size_t>(c.vocab_size);
    Inference full(s, m, DType::f32);
    auto view = full.logits(ids, Inference::Rows::all);
    const std::vector<float> want(view.begin(), view.end());
    ASSERT_EQ(want.size(), 33 * V);
    // One by one, in pieces, and all at once: of each call the last row is looked at.
    for (const std::vector<size_t>& pieces : {std::vector<size_t>(33, 1), {5, 1, 1, 9, 17}, {32, 1}, {33}}) {
      Inference cached(s, m, DType::f32, 33);
      size_t at = 0;
      for (size_t n : pieces) {
        auto got = cached.logits(std::span(ids).subspan(at, n), Inference::Rows::last);
        at += n;
        ASSERT_EQ(got.size(), V);
        for (size_t v = 0; v < V; ++v) ASSERT_NEAR(got[v], want[(at - 1) * V + v], 1e-5) << at;
      }
    }
  }
}

TEST_F(Inferences, GreedyAndSeeds) {
  for (const ModelConfig& c : configs()) {
    SavedModel m = drawn_model(s, c);
    const auto prompt = text(5);
    const auto greedy = generated(m, prompt, {.temperature = 0}, 20);
    ASSERT_EQ(greedy.size(), 20u);
    // Each is the likeliest after all before it.
    std::vector<int32_t> so_far = prompt;
    Inference full(s, m, DType::f32);
    for (int32_t id : greedy) {
      auto logits = full.logits(so_far, Inference::Rows::last);
      ASSERT_EQ(id, std::max_element(logits.begin(), logits.end()) - logits.begin());
      so_far.push_back(id);
    }
    EXPECT_EQ(generated(m, prompt, {.temperature = 1, .top_k = 1, .seed = 5}, 20), greedy);
    EXPECT_EQ(generated(m, prompt, {.temperature = 1, .top_p = 1e-9, .seed = 6}, 20), greedy);
    const auto drawn = generated(m, prompt, {.temperature = 1, .seed = 5}, 20);
    EXPECT_EQ(generated(m, prompt, {.temperature = 1, .seed = 5}, 20), drawn);
    EXPECT_NE(generated(m, prompt, {.temperature = 1, .seed = 6}, 20), drawn);
    EXPECT_NE(drawn, greedy);
  }
}

TEST_F(Inferences, ContextsMayOverflow) {
  for (const ModelConfig& c : configs()) {
    SavedModel m = drawn_model(s, c);  // 40 tokens
    EXPECT_EQ(generated(m, text(3), {.temperature = 0}, 150).size(), 150u);
    // A prompt longer than the context: what fits of its end counts.
    const auto prompt = text(100), end = std::vector<int32_t>(prompt.end() - 40, prompt.end());
    EXPECT_EQ(generated(m, prompt, {.temperature = 0}, 30), generated(m, end, {.temperature = 0}, 30));
    // With room for exactly what is asked for it is the beginning of a longer answer.
    auto long_answer = generated(m, text(3), {.temperature = 0}, 37);
    EXPECT_EQ(generated(m, text(3), {.temperature = 0}, 20),
              std::vector<int32_t>(long_answer.begin(), long_answer.begin() + 20));
  }
}

TEST_F(Inferences, PromptsThatCannotBe) {
  SavedModel m = drawn_model(s, small_config(Family::gpt2));
  for (int32_t bad : {-1, 67, 1 << 30}) {
    try {
      generated(m, std::vector<int32_t>{1, bad}, {}, 1);
      ADD_FAILURE() << bad;
    } catch (const DataError& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr(std::to_string(bad)), HasSubstr("67")));
    }
  }
  EXPECT_THROW(generated(m, {}, {}, 1), DataError);
  m.params->owned()[0].master.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(generated(m, std::vector<int32_t>{0}, {}, 1), DataError) << "not a number is no likelihood";
}

TEST(Sampling, FollowsTheDistribution) {
  const std::vector<float> logits = {1.0f, -0.5f, 2.0f, 0.0f, 1.0f, -30.0f};
  auto frequencies = [&](const Sampling& sampling) {
    constexpr int64_t kDraws = 40'000;
    std::vector<double> f(logits.size());
    for (int64_t n = 0; n < kDraws; ++n) f[static_cast<size_t>(sample(logits, sampling, n))] += 1.0 / kDraws;
    return f;
  };
  auto expect = [&](const Sampling& sampling, const std::vector<bool>& kept) {
    std::vector<double> p(logits.size());
    double total = 0;
    for (size_t i = 0; i < p.size(); ++i)
      total += p[i] = kept[i] ? std::exp(static_cast<double>(logits[i]) / sampling.temperature) : 0;
    const auto f = frequencies(sampling);
    for (size_t i = 0; i < p.size(); ++i)
      if (!kept[i])
        EXPECT_EQ(f[i], 0) << i;
      else
        EXPECT_NEAR(f[i], p[i] / total, 4 * std::sqrt(p[i] / total / 40'000) + 1e-9) << i;
  };
  const std::vector<bool> all(6, true);
  expect({.temperature = 1}, all);
  expect({.temperature = 0.5, .seed = 9}, all);
  expect({.temperature = 3, .seed = 1u << 31}, all);
  expect({.temperature = 1, .top_k = 2}, {true, false, true, false, false, false});  // of equals the lower id
  expect({.temperature = 1, .top_k = 3}, {true, false, true, false, true, false});
  expect({.temperature = 1, .top_k = 99}, all);
  // Probabilities: 0.185, 0.041, 0.504, 0.068, 0.185, 0.
  expect({.temperature = 1, .top_p = 0.5}, {false, false, true, false, false, false});
  expect({.temperature = 1, .top_p = 0.6}, {true, false, true, false, false, false});
  expect({.temperature = 1, .top_p = 0.9}, {true, false, true, true, true, false});
  expect({.temperature = 1, .top_k = 2, .top_p = 0.8}, {true, false, true, false, false, false});
}

/// Text of a few kinds of characters.
std::string some_text() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += fmt::format("the {} earth \xC3\xA9\xE2\x82\xAC. ", i * 7 % 10);
  return text;
}

struct Spoken : Inferences {
  TempDir dir;
  Spoken() {
    write_file(dir / "a.txt", some_text());
    EXPECT_EQ(chiron(dir.path(), {"prepare", dir / "a.txt", "--out", dir / "data"}).code, 0);
    write_file(dir / "c.yaml", "data: {train: [" + dir / "data" + "]}\n" + R"(
model: {family: llama, num_layers: 1, d_model: 32, num_heads: 2}
training: {batch_size: 4, seq_len: 32, max_steps: 40, learning_rate: 1e-2, warmup_steps: 0, eval_every: 0}
run: {threads: 1}
)");
    Outcome o = chiron(dir.path(), {"train", dir / "c.yaml", "--out", dir / "run"});
    EXPECT_EQ(o.code, 0) << o.text;
  }
  Outcome say(const Words& words) {
    return chiron(dir.path(), Words{"generate", dir / "run", "--threads", "1"} + words);
  }
};

TEST_F(Spoken, StopTextsSeedsAndPrompts) {
  const Words greedy = {"--prompt", "the ", "--max-tokens", "40", "--temperature", "0"};
  Outcome o = say(greedy);
  ASSERT_EQ(o.code, 0) << o.text;
  ASSERT_THAT(o.text, StartsWith("the "));
  ASSERT_EQ(o.text.size(), 45u) << "prompt, 40 bytes, newline: " << o.text;
  EXPECT_EQ(say(greedy).text, o.text);
  // A stop text ends it wherever it begins, over token borders, and is not printed.
  const std::string stop = o.text.substr(14, 3);
  const std::string until = o.text.substr(0, o.text.find(stop, 4)) + "\n";
  EXPECT_EQ(say(greedy + Words{"--stop", stop}).text, until);
  EXPECT_EQ(say(greedy + Words{"--stop", "never said", "--stop", stop}).text, until);
  EXPECT_EQ(say(greedy + Words{"--stop", "never said"}).text, o.text);

  const Words drawn = {"--prompt", "the ", "--max-tokens", "60", "--temperature", "1.5", "--seed"};
  EXPECT_EQ(say(drawn + Words{"3"}).text, say(drawn + Words{"3"}).text);
  EXPECT_NE(say(drawn + Words{"3"}).text, say(drawn + Words{"4"}).text);

  // The prompt ends within a character: its bytes come out as they are.
  o = say({"--prompt", "the \xE2\x82", "--max-tokens", "1", "--temperature", "0"});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.text, StartsWith("the \xE2\x82"));
  EXPECT_EQ(o.text.size(), 8u);
  EXPECT_EQ(say({"--prompt-ids", "116, 104 101", "--max-tokens", "200"}).code, 0) << "longer than the context";

  for (const char* ids : {"3,256", "99999999", "-1"}) {
    o = say({"--prompt-ids", ids});
    EXPECT_EQ(o.code, 3) << ids << ": " << o.text;
    EXPECT_THAT(o.text, HasSubstr("vocabulary of 256"));
  }
  EXPECT_EQ(say({"--prompt-ids", "3,x"}).code, 2);
  EXPECT_EQ(say({"--prompt-ids", "99999999999"}).code, 2);
  EXPECT_EQ(say({}).code, 2);
  o = say({"--prompt", "a", "--prompt-ids", "3"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.text, HasSubstr("--prompt and --prompt-ids are both given"));
  o = say({"--prompt-ids", "3", "--stop", "x"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.text, HasSubstr("--stop x"));
  o = say({"--prompt", std::string(33, 'e'), "--max-tokens", "1"});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.text, HasSubstr("has 33 tokens: the model's context is 32, so only the last 32 are read"));
  EXPECT_THAT(say({"--prompt", std::string(32, 'e'), "--max-tokens", "1"}).text, StartsWith("eee"));
  EXPECT_EQ(say({"--prompt-ids", ", ,"}).code, 3) << "no tokens";
}

TEST_F(Spoken, StopTextsAreLookedForInWhatIsNew) {
  Outcome o = say({"--prompt", "the earth ", "--max-tokens", "3", "--stop", "earth"});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.text, StartsWith("the earth "));
  for (const Words& stops : {Words{"--stop", ""}, Words{"--stop", "x", "--stop", ""}}) {
    o = say(Words{"--prompt", "the "} + stops);
    EXPECT_EQ(o.code, 2) << o.text;
    EXPECT_THAT(o.text, HasSubstr("--stop \"\": an empty text appears everywhere"));
  }
}

TEST_F(Spoken, NothingIsGeneratedForNobody) {
  for (const char* prompt : {"--prompt the", "--prompt-ids 116"}) {
    const std::string line =
        fmt::format("timeout 50 " CHIRON_PROGRAM " generate {} {} --threads 1 --max-tokens ", dir / "run", prompt);
    auto shell = [&](const std::string& rest) {
      const int status = std::system(("bash -c '" + line + rest + "' 2> " + dir / "err").c_str());
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    };
    EXPECT_EQ(shell("100000000 | head -c 5 > /dev/null; exit ${PIPESTATUS[0]}"), 0) << prompt;
    EXPECT_EQ(read_file(dir / "err"), "");
    EXPECT_EQ(shell("100000000 > /dev/full"), 4) << prompt;
    EXPECT_THAT(read_file(dir / "err"), HasSubstr("cannot write to the standard output"));
  }
}

TEST_F(Spoken, ARunThatSavesAndPrunesIsReadAllTheSame) {
  Process run({"train", dir / "c.yaml", "--out", dir / "run", "--set", "training.max_steps=100000000", "--set",
               "checkpoint.every=1", "--set", "checkpoint.keep_last=1"},
              dir / "run.txt");
  ASSERT_TRUE(eventually([&] { return newest_checkpoint(dir / "run/checkpoints")->step > 41; }));
  Log log(LogLevel::error);
  for (int i = 0; i < 300; ++i) {
    SavedModel m = open_model(s, dir / "run", {}, log);
    ASSERT_TRUE(m.tokenizer);
  }
}

TEST_F(Spoken, EvaluationTakesNoMoreMemoryThanTheDataFills) {
  // A model that takes contexts of 2^28 tokens.
  SavedModel m = drawn_model(s, [] {
    ModelConfig c = small_config(Family::llama);
    c.max_seq_len = 1 << 28;
    c.vocab_size = 256;
    return c;
  }());
  m.tokenizer = byte_tokenizer();
  export_model(m, dir / "long");
  auto eval = [&](const Words& more) {
    Outcome o = chiron(dir.path(), Words{"eval", dir / "long", "--data", dir / "data"} + more);
    EXPECT_EQ(o.code, 0) << o.text;
    return o.text;
  };
  const std::string text = eval({});
  EXPECT_THAT(text, StartsWith("loss "));
  EXPECT_EQ(eval({"--seq-len", "200M"}), text);
  write_file(dir / "b.txt", std::string(6000, 'b'));
  ASSERT_EQ(chiron(dir.path(), {"prepare", dir / "b.txt", "--out", dir / "data", "--overwrite"}).code, 0);
  EXPECT_THAT(eval({"--batch-size", "1"}), HasSubstr("in sequences of 4096 tokens; the model takes 268435456"));
}

TEST_F(Spoken, EvaluationDoesNotHangOnTheBatch) {
  std::string first;
  for (const char* batch : {"1", "2", "3", "64", "1G"}) {
    Outcome o = chiron(dir.path(), {"eval", dir / "run", "--data", dir / "data", "--batch-size", batch});
    ASSERT_EQ(o.code, 0) << o.text;
    EXPECT_THAT(o.text, HasSubstr(counted(std::ssize(some_text()) - 1, "token")));
    if (first.empty()) first = o.text;
    EXPECT_EQ(o.text, first);
  }
  Outcome o = chiron(dir.path(), {"eval", dir / "run", "--data", dir / "data", "--seq-len", "33"});
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_THAT(o.text, HasSubstr("--seq-len 33: the model takes 32 tokens at most"));
}

TEST_F(Inferences, EvaluationOfAKnownLoss) {
  // With all weights zero every token is as likely as any other.
  for (const ModelConfig& c : configs()) {
    SavedModel m = drawn_model(s, c);
    for (const Shard& shard : m.params->owned()) s.fill_zero(shard.master);
    for (int64_t batch : {1, 2, 3}) {
      Loader loader(std::make_shared<test::VectorSource>(text(95), 67),
                    {.sequences = batch, .length = 10, .shuffle = false, .once = true});
      Evaluation e = evaluate_model(s, m, loader);
      EXPECT_EQ(e.tokens, 94) << batch;
      EXPECT_NEAR(e.loss(), std::log(67.0), 1e-6);
      EXPECT_NEAR(e.perplexity(), 67, 1e-4);
      EXPECT_EQ(e.bits_per_byte(loader.source()), 0) << "of no text";
    }
  }
}

TEST_F(Inferences, LossOfBatchesOfAnySizeIsTheSame) {
  for (const ModelConfig& c : configs()) {
    SavedModel m = drawn_model(s, c);
    std::optional<double> want;
    for (int64_t batch : {1, 2, 3, 10}) {
      Loader loader(std::make_shared<test::VectorSource>(text(95), 67),
                    {.sequences = batch, .length = 10, .shuffle = false, .once = true});
      const double loss = evaluate_model(s, m, loader).loss();
      if (!want) want = loss;
      EXPECT_NEAR(loss, *want, 1e-6);
    }
    EXPECT_GT(std::abs(*want - std::log(67.0)), 0.01);
  }
}

TEST(Evaluations, BitsPerByte) {
  struct Text : TokenSource {
    std::string name() const override { return "text"; }
    int64_t num_tokens() const override { return 4; }
    int64_t vocab_size() const override { return 9; }
    int64_t text_bytes() const override { return 8; }
    void read(int64_t, std::span<int32_t>) const override {}
    int64_t next_document(int64_t) const override { return 4; }
  } text;
  // 2 ln 2 nats a token, which stands for two bytes: one bit a byte.
  Evaluation e{.loss_sum = 3 * 2 * std::log(2.0), .tokens = 3};
  EXPECT_NEAR(e.bits_per_byte(text), 1, 1e-12);
  EXPECT_NEAR(e.perplexity(), 4, 1e-12);
}

}  // namespace
}  // namespace chiron::tests
