// Context parallelism on thread ranks: loss and every gradient are one rank's, and each layout acts.

#include "support/layout_run.h"

namespace chiron::tests {
namespace {

Options options_of(Family family) { return layout_options(family, 48); }

/// Compares these layouts with one rank.
void expect_layouts_equal(const Options& o, const std::string& what,
                          const std::vector<Layout>& layouts = {
                              {.sizes = {.cp = 2}}, {.sizes = {.cp = 3}}, {.sizes = {.cp = 4}}}) {
  const LayoutRun one = run_layout(o);
  for (const Layout& layout : layouts) {
    const std::string name = what + ": " + layout.sizes.str() + (layout.sequence_parallel ? " sequence" : "");
    const LayoutRun run = run_layout(o, layout);
    expect_equal(run, one, name);
    for (size_t r = 0; r < run.bytes_received.size(); ++r) {
      EXPECT_GT(run.bytes_received[r], 0) << name;
      EXPECT_LE(run.saved_bytes[r], one.saved_bytes[0] / layout.sizes.cp + 100 * Stack::kAlign) << name;
    }
  }
}

TEST(ContextParallel, IsOneRank) {
  for (const Family family : {Family::gpt2, Family::llama}) expect_layouts_equal(options_of(family), "plain");
}

TEST(ContextParallel, DropoutDrawsAreOneRanks) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    Options o = options_of(family);
    drop(o, 0.2);
    expect_layouts_equal(o, "dropout");
  }
}

TEST(ContextParallel, MasksAndWindowsAreOneRanks) {
  for (const int64_t window : {0, 7, 30}) {
    Options o = options_of(Family::llama);
    o.model.sliding_window = window;
    o.model.num_kv_heads = 1;
    o.data.document_mask = true;
    o.training.label_smoothing = 0.1;
    expect_layouts_equal(o, "window " + std::to_string(window));
  }
}

TEST(ContextParallel, WithTensorAndDataParallelRanks) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    Options o = options_of(family);
    drop(o, 0.1);
    o.data.document_mask = family == Family::llama;
    expect_layouts_equal(o, "with tp",
                         {{.sizes = {.tp = 2, .cp = 2}},
                          {.sizes = {.tp = 2, .cp = 2}, .sequence_parallel = true},
                          {.sizes = {.tp = 4, .cp = 2}, .sequence_parallel = true}});
  }
}

TEST(ContextParallel, PoliciesAndDeferredWeightGradientsGiveTheSameBits) {
  Options o = options_of(Family::llama);
  drop(o, 0.1);
  Layout layout{.sizes = {.tp = 2, .cp = 2}, .sequence_parallel = true};
  const LayoutRun all = run_layout(o, layout);
  o.activations = {.kind = Activations::Kind::keep_none};
  for (const bool split : {false, true}) {
    layout.split_weight_gradients = split;
    const LayoutRun none = run_layout(o, layout);
    EXPECT_EQ(none.loss, all.loss);
    expect_close(none.gradients, all.gradients, 0, split ? "deferred" : "at once");
  }
}

TEST(ContextParallel, NarrowTypesComeClose) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    Options o = options_of(family);
    o.training.use_amp = true;
    const LayoutRun one = run_layout(o);
    const LayoutRun run = run_layout(o, {.sizes = {.tp = 2, .cp = 2}, .sequence_parallel = true});
    EXPECT_NEAR(run.loss, one.loss, 1e-2);
    expect_close(run.weights, one.weights, 0, "bf16");
    expect_close(run.gradients, one.gradients, 5e-2, "bf16");
  }
}

}  // namespace
}  // namespace chiron::tests
