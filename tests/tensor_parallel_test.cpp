// Tensor and sequence parallelism on thread ranks: loss and every gradient are one rank's, and each layout acts.

#include "base/error_testing.h"
#include "support/layout_run.h"

namespace chiron::tests {
namespace {

Options options_of(Family family) { return layout_options(family, 36); }

/// Compares tp ranks with one, whole rows and shared out ones.
void expect_layouts_equal(const Options& o, std::vector<int> sizes, const std::string& what) {
  const LayoutRun one = run_layout(o);
  EXPECT_EQ(one.bytes_received[0], 0);
  for (const int tp : sizes) {
    std::vector<int64_t> saved;
    for (const bool sequence : {false, true}) {
      const std::string name = what + " tp " + std::to_string(tp) + (sequence ? " sequence" : "");
      const LayoutRun run = run_layout(o, {.sizes = {.tp = tp}, .sequence_parallel = sequence});
      expect_equal(run, one, name);
      const int64_t kv = std::max<int64_t>(o.model.num_kv_heads, tp) * o.model.head_dim * 2 * o.model.d_model;
      const int64_t one_kv = o.model.num_kv_heads * o.model.head_dim * 2 * o.model.d_model;
      for (size_t r = 0; r < static_cast<size_t>(tp); ++r) {
        EXPECT_EQ(run.block_elements[r] * tp, one.block_elements[0] - one_kv + kv) << name;
        EXPECT_GT(run.bytes_received[r], 0) << name;
        EXPECT_LT(run.saved_bytes[r], one.saved_bytes[0]) << name;
        if (sequence) {
          EXPECT_LT(run.saved_bytes[r], saved[r]) << name;
        }
      }
      saved = run.saved_bytes;
    }
  }
}

TEST(TensorParallel, Gpt2IsOneRanks) {
  for (const bool tied : {true, false}) {
    Options o = options_of(Family::gpt2);
    o.model.tie_embeddings = tied;
    expect_layouts_equal(o, {2, 4}, tied ? "tied" : "untied");
  }
}

TEST(TensorParallel, LlamaIsOneRanksWithAnyNumberOfKvHeads) {
  for (const int64_t kv : {1, 2, 4}) {
    Options o = options_of(Family::llama);
    o.model.num_kv_heads = kv;
    o.model.tie_embeddings = kv == 2;
    o.model.attention_bias = o.model.mlp_bias = kv != 4;
    expect_layouts_equal(o, {2, 4}, "kv heads " + std::to_string(kv));
  }
}

TEST(TensorParallel, DropoutDrawsAreOneRanks) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    Options o = options_of(family);
    drop(o, 0.2);
    expect_layouts_equal(o, {2, 4}, "dropout");
  }
}

TEST(TensorParallel, VocabularyMayBeUneven) {
  // 67 leaves ranks without a row; 300 gives every rank of two some, and the last of four none.
  for (const int64_t vocab : {67, 300}) {
    Options o = options_of(Family::llama);
    o.model.vocab_size = vocab;
    o.training.label_smoothing = 0.1;
    o.training.loss_chunk = 25;
    expect_layouts_equal(o, {2, 4}, "vocabulary " + std::to_string(vocab));
  }
}

TEST(TensorParallel, MasksAndWindowsAreOneRanks) {
  Options o = options_of(Family::llama);
  o.model.sliding_window = 11;
  o.data.document_mask = true;
  expect_layouts_equal(o, {2, 4}, "window and documents");
}

TEST(TensorParallel, PoliciesAndDeferredWeightGradientsGiveTheSameBits) {
  using Kind = Activations::Kind;
  for (const Family family : {Family::gpt2, Family::llama})
    for (const bool sequence : {false, true}) {
      Options o = options_of(family);
      drop(o, 0.1);
      Layout layout{.sizes = {.tp = 2}, .sequence_parallel = sequence};
      const LayoutRun all = run_layout(o, layout);
      auto expect_same = [&](const LayoutRun& run, const std::string& what) {
        EXPECT_EQ(run.loss, all.loss) << what;
        expect_close(run.gradients, all.gradients, 0, what);
      };
      layout.split_weight_gradients = true;
      const LayoutRun later = run_layout(o, layout);
      expect_same(later, "deferred");
      EXPECT_GT(later.saved_bytes[1], all.saved_bytes[1]);
      for (const Activations& a : {Activations{.kind = Kind::keep_none}, Activations{.kind = Kind::every, .every = 2},
                                   Activations{.kind = Kind::keep, .slots = {"qkv", "att"}},
                                   Activations{.kind = Kind::keep, .slots = {"h1", "x2", "act"}}}) {
        o.activations = a;
        for (const bool split : {false, true}) {
          layout.split_weight_gradients = split;
          const LayoutRun run = run_layout(o, layout);
          expect_same(run, a.yaml());
          EXPECT_LT(run.saved_bytes[1], (split ? later : all).saved_bytes[1]) << a.yaml();
        }
      }
    }
}

TEST(TensorParallel, SizesThatDoNotDivideAreRefusedWithThoseThatWouldDo) {
  auto refused = [](Family family, int64_t heads, int64_t kv_heads, int64_t d_ff, int tp, const char* would_do) {
    Options o = tiny_options(family);
    o.model.num_heads = heads, o.model.num_kv_heads = kv_heads, o.model.d_ff = d_ff;
    ModelSetup setup = model_setup(o, 67);
    setup.tp = tp;
    const std::string message = message_of<ConfigError>([&] { make_model(setup); });
    EXPECT_NE(message.find(fmt::format("over {} ranks", tp)), std::string::npos) << message;
    EXPECT_TRUE(message.ends_with(would_do)) << message;
  };
  refused(Family::gpt2, 4, 4, 192, 3, "what would do: 1, 2, 4");
  refused(Family::gpt2, 4, 4, 194, 4, "what would do: 1, 2");
  refused(Family::llama, 12, 4, 192, 6, "what would do: 1, 2, 4, 12");
  refused(Family::llama, 12, 12, 96, 5, "what would do: 1, 2, 3, 4, 6, 12");
}

}  // namespace
}  // namespace chiron::tests
