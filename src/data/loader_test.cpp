#include "data/loader.h"

#include <map>
#include <random>
#include <set>

#include "data/permutation.h"
#include "data/testing.h"

namespace chiron {
namespace {

using test::counting_source;
using test::expect_data_error;
using test::expect_error;
using test::VectorSource;

HostStep step_of(const Loader& loader, int64_t step) {
  HostStep out;
  loader.fill(step, out);
  return out;
}

void expect_same(const HostStep& a, const HostStep& b) {
  ASSERT_EQ(a.step, b.step);
  ASSERT_EQ(a.micros.size(), b.micros.size());
  for (size_t m = 0; m < a.micros.size(); ++m) {
    const HostBatch &x = a.micros[m], &y = b.micros[m];
    EXPECT_EQ(x.tokens, y.tokens);
    EXPECT_EQ(x.token_order, y.token_order);
    EXPECT_EQ(x.positions, y.positions);
    EXPECT_EQ(x.position_order, y.position_order);
    EXPECT_EQ(x.labels, y.labels);
    EXPECT_EQ(x.starts, y.starts);
    EXPECT_EQ(x.index, y.index);
  }
}

/// Every row of a step: first token of the sample, by the row's number in the step.
std::map<int64_t, int32_t> samples_of(const HostStep& step) {
  std::map<int64_t, int32_t> out;
  for (const HostBatch& b : step.micros)
    for (int64_t r = 0; r < b.sequences; ++r) {
      auto at = static_cast<size_t>(r * b.length);
      EXPECT_EQ(b.index[at] % b.length, 0);
      EXPECT_TRUE(out.emplace(b.index[at] / b.length, b.tokens[at]).second);
    }
  return out;
}

TEST(Permutation, IsOneForEverySize) {
  for (int64_t n : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4096, 5000})
    for (int64_t epoch : {0, 1}) {
      Permutation p(n, 7, epoch);
      std::set<int64_t> seen;
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_GE(p(i), 0);
        ASSERT_LT(p(i), n);
        seen.insert(p(i));
      }
      ASSERT_EQ(static_cast<int64_t>(seen.size()), n);
    }
}

TEST(Permutation, SeedAndEpochChangeIt) {
  constexpr int64_t n = 1000;
  Permutation a(n, 1, 0), b(n, 2, 0), c(n, 1, 1), d(n, 1, int64_t{1} << 32);
  for (const Permutation* other : {&b, &c, &d}) {
    int same = 0;
    for (int64_t i = 0; i < n; ++i) same += a(i) == (*other)(i);
    EXPECT_LT(same, 15);  // 1 is expected
  }
}

TEST(Permutation, MixesWell) {
  // Over many seeds each place gets each value about equally often: chi-square with 25 cells of 400.
  constexpr int64_t n = 5, trials = 2000;
  std::map<std::pair<int64_t, int64_t>, int> counts;
  for (int64_t seed = 0; seed < trials; ++seed)
    for (int64_t i = 0; i < n; ++i) ++counts[{i, Permutation(n, seed, 0)(i)}];
  double chi = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double d = counts[{i, j}] - 400.0;
      chi += d * d / 400;
    }
  EXPECT_LT(chi, 45);  // 16 degrees of freedom: beyond 45 once in ten thousand
  // Neighbours do not stay neighbours.
  Permutation big(100000, 3, 0);
  int close = 0;
  for (int64_t i = 0; i + 1 < 100000; ++i) close += std::abs(big(i) - big(i + 1)) < 1000;
  EXPECT_LT(close, 2300);  // 2000 are expected
}

TEST(SortOrder, SortsStably) {
  std::mt19937 rng(1);
  std::vector<int32_t> ids(300), order, counts;
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 20);
  sort_order(ids, 20, order, counts);
  std::vector<int32_t> expected(300);
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) { return ids[a] < ids[b]; });
  EXPECT_EQ(order, expected);
}

TEST(Loader, EveryEpochIsAPermutationOfAllSamples) {
  Loader loader(counting_source(4 * 23 + 3), {.sequences = 3, .length = 4, .micros = 2, .seed = 5});
  ASSERT_EQ(loader.num_samples(), 23);
  std::vector<int32_t> stream;
  for (int64_t step = 0; step < 23; ++step)  // 23 steps of 6 samples: 6 epochs, cut anywhere by steps
    for (auto [g, token] : samples_of(step_of(loader, step))) stream.push_back(token / 4);
  std::set<std::vector<int32_t>> orders;
  for (int epoch = 0; epoch < 6; ++epoch) {
    std::vector<int32_t> order(stream.begin() + epoch * 23, stream.begin() + (epoch + 1) * 23);
    orders.insert(order);
    std::set<int32_t> seen(order.begin(), order.end());
    EXPECT_EQ(seen.size(), 23u);
    EXPECT_EQ(*seen.rbegin(), 22);
  }
  EXPECT_EQ(orders.size(), 6u) << "each epoch has an order of its own";
}

TEST(Loader, LabelsAreTheNextTokens) {
  Loader loader(counting_source(50), {.sequences = 2, .length = 5, .micros = 2});
  HostStep step = step_of(loader, 3);
  for (const HostBatch& b : step.micros) {
    EXPECT_TRUE(b.starts.empty());
    for (size_t i = 0; i < b.tokens.size(); ++i) {
      EXPECT_EQ(b.labels[i], b.tokens[i] + 1);
      EXPECT_EQ(b.positions[i], static_cast<int32_t>(i % 5));
      EXPECT_EQ(b.tokens[i] % 5, static_cast<int32_t>(i % 5));
    }
    for (size_t i = 0; i + 1 < b.tokens.size(); ++i)
      EXPECT_LE(b.tokens[static_cast<size_t>(b.token_order[i])], b.tokens[static_cast<size_t>(b.token_order[i + 1])]);
    EXPECT_EQ(b.position_order, (std::vector<int32_t>{0, 5, 1, 6, 2, 7, 3, 8, 4, 9}));
  }
}

TEST(Loader, FillIsAPureFunctionOfTheStep) {
  auto source = counting_source(1000);
  LoaderOptions options{.sequences = 2, .length = 7, .micros = 3, .seed = 11};
  Loader loader(source, options), fresh(source, options);
  std::vector<HostStep> first;
  for (int64_t step = 0; step < 60; ++step) first.push_back(step_of(loader, step));
  HostStep reused;
  for (int64_t step : {59, 0, 31, 31, 7}) {
    fresh.fill(step, reused);
    expect_same(reused, first[static_cast<size_t>(step)]);
  }
  options.seed = 12;
  EXPECT_NE(step_of(Loader(source, options), 0).micros[0].tokens, first[0].micros[0].tokens);
}

TEST(Loader, RefillingAllocatesNothing) {
  Loader loader(counting_source(1000), {.sequences = 2, .length = 7, .micros = 3, .document_mask = true});
  HostStep step = step_of(loader, 0);
  auto addresses = [&] {
    std::vector<const int32_t*> out = {step.scratch.data()};
    for (const HostBatch& b : step.micros)
      for (auto* a : {&b.tokens, &b.token_order, &b.positions, &b.position_order, &b.labels, &b.starts, &b.index})
        out.push_back(a->data());
    return out;
  };
  auto before = addresses();
  for (int64_t n = 1; n < 50; ++n) loader.fill(n, step);
  EXPECT_EQ(addresses(), before);
}

TEST(Loader, RanksTogetherSeeWhatOneSees) {
  // The same global step, however it is cut into ranks and micro-batches: same samples under the same numbers.
  auto source = counting_source(12 * 3 * 20);
  auto all = [&](int64_t sequences, int64_t micros, int64_t num_ranks, int64_t step) {
    std::map<int64_t, int32_t> out;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      Loader loader(source,
                    {.sequences = sequences, .length = 3, .micros = micros, .rank = rank, .num_ranks = num_ranks});
      out.merge(samples_of(step_of(loader, step)));
    }
    return out;
  };
  for (int64_t step : {0, 5, 77}) {
    auto one = all(12, 1, 1, step);
    ASSERT_EQ(one.size(), 12u);
    EXPECT_EQ(all(1, 12, 1, step), one);
    EXPECT_EQ(all(3, 2, 2, step), one);
    EXPECT_EQ(all(2, 2, 3, step), one);
    EXPECT_EQ(all(1, 1, 12, step), one);
  }
}

TEST(Loader, ContextRanksHaveTwoChunksOfEverySequence) {
  std::vector<int32_t> tokens(1000);
  std::vector<int64_t> documents;
  for (int32_t i = 0; i < 1000; ++i) {
    tokens[static_cast<size_t>(i)] = i * i % 97;
    if (i % 13 == 0) documents.push_back(i);
  }
  auto source = std::make_shared<VectorSource>(tokens, 97, documents);
  LoaderOptions options{.sequences = 3, .length = 24, .micros = 2, .document_mask = true};
  const HostStep whole = step_of(Loader(source, options), 5);
  for (const int64_t ranks : {2, 3, 4}) {
    options.context_ranks = ranks;
    const int64_t chunk = options.length / (2 * ranks);
    for (options.context_rank = 0; options.context_rank < ranks; ++options.context_rank) {
      const HostStep part = step_of(Loader(source, options), 5);
      for (size_t m = 0; m < 2; ++m) {
        const HostBatch &all = whole.micros[m], &own = part.micros[m];
        EXPECT_EQ(own.sequences, 3);
        EXPECT_EQ(own.length, 2 * chunk);
        ASSERT_EQ(own.tokens.size(), static_cast<size_t>(6 * chunk));
        size_t at = 0;
        for (const int64_t number : {options.context_rank, 2 * ranks - 1 - options.context_rank})
          for (int64_t row = 0; row < 3; ++row)
            for (int64_t i = 0; i < chunk; ++i, ++at) {
              const auto from = static_cast<size_t>(row * options.length + number * chunk + i);
              EXPECT_EQ(own.tokens[at], all.tokens[from]);
              EXPECT_EQ(own.positions[at], all.positions[from]);
              EXPECT_EQ(own.labels[at], all.labels[from]);
              EXPECT_EQ(own.starts[at], all.starts[from]);
              EXPECT_EQ(own.index[at], all.index[from]);
            }
        std::vector<int32_t> order, counts;
        sort_order(own.tokens, 97, order, counts);
        EXPECT_EQ(own.token_order, order);
        sort_order(own.positions, 24, order, counts);
        EXPECT_EQ(own.position_order, order);
      }
    }
  }
}

TEST(Loader, CutsThatCannotBeSayWhatWouldDo) {
  auto source = counting_source(1000);
  expect_error<ConfigError>([&] { Loader(source, {.length = 30, .context_ranks = 2}); }, {"30", "4", "28 or 32"});
  expect_error<ConfigError>([&] { Loader(source, {.length = 3, .context_ranks = 3}); }, {"3", "6", "6 or 12"});
  expect_error<ConfigError>([&] { Loader(source, {.sequences = 3, .length = 9, .row_ranks = 2}); }, {"27", "2"});
  expect_error<ConfigError>([&] { Loader(source, {.sequences = 3, .length = 12, .context_ranks = 2, .row_ranks = 4}); },
                            {"18", "2 context ranks", "multiple of 4"});
}

TEST(Loader, NumbersRowsByMicroBatchThenRank) {
  Loader loader(counting_source(1000),
                {.sequences = 2, .length = 5, .micros = 2, .rank = 1, .num_ranks = 3, .shuffle = false});
  HostStep step = step_of(loader, 2);
  // G = 12; micro-batch m, rank 1, row r is sample 24 + (m*3 + 1)*2 + r.
  EXPECT_EQ(step.micros[0].tokens[0], (24 + 2) * 5);
  EXPECT_EQ(step.micros[0].tokens[5], (24 + 3) * 5);
  EXPECT_EQ(step.micros[1].tokens[0], (24 + 8) * 5);
  EXPECT_EQ(step.micros[1].index[6], 9 * 5 + 1);
}

TEST(Loader, ExactlyKStepsOfTokensAreKSteps) {
  // Faults of others: a step lost, or a token seen twice, at the end of the file.
  for (int64_t k : {2, 3, 10}) {
    Loader loader(counting_source(k * 2 * 8 + 1), {.sequences = 2, .length = 8});
    EXPECT_EQ(loader.num_samples(), 2 * k);
    std::multiset<int32_t> labels;
    for (int64_t n = 0; n < k; ++n) {
      HostStep step = step_of(loader, n);
      labels.insert(step.micros[0].labels.begin(), step.micros[0].labels.end());
    }
    std::multiset<int32_t> expected;
    for (int32_t i = 1; i <= k * 16; ++i) expected.insert(i);
    EXPECT_EQ(labels, expected);
  }
}

TEST(Loader, TooFewTokensIsAnErrorThatNamesTheSource) {
  LoaderOptions options{.sequences = 2, .length = 8, .num_ranks = 3};  // needs 3 * 2 * 9
  for (int64_t n : {0, 1, 8, 9, 53})
    expect_data_error([&] { Loader(counting_source(n), options); },
                      {"folder/of/tokens", fmt::format(": {} tokens", n), "54", "3 ranks x 2 sequences x (8 + 1)"});
  EXPECT_EQ(Loader(counting_source(54), options).num_samples(), 6);
  LoaderOptions once{.length = 8, .shuffle = false, .once = true};
  for (int64_t n : {0, 1})
    expect_data_error([&] { Loader(counting_source(n), once); },
                      {"folder/of/tokens", fmt::format(": {} tokens", n), "2"});
  EXPECT_EQ(Loader(counting_source(2), once).num_steps(), 1);
}

TEST(Loader, OptionsThatCannotBe) {
  auto source = counting_source(100);
  expect_error<ConfigError>([&] { Loader(source, {.sequences = 0, .length = 4}); }, {"sequences", "0"});
  expect_error<ConfigError>([&] { Loader(source, {.length = 0}); }, {"length", "0"});
  expect_error<ConfigError>([&] { Loader(source, {.length = 4, .micros = -1}); }, {"micro-batches", "-1"});
  expect_error<ConfigError>([&] { Loader(source, {.sequences = 1 << 20, .length = 1 << 12}); }, {"2^31"});
}

TEST(Loader, SizesOfOne) {
  Loader loader(counting_source(2), {});
  HostStep step = step_of(loader, 9);
  ASSERT_EQ(step.micros.size(), 1u);
  EXPECT_EQ(step.micros[0].tokens, std::vector<int32_t>{0});
  EXPECT_EQ(step.micros[0].labels, std::vector<int32_t>{1});
  EXPECT_EQ(step.micros[0].token_order, std::vector<int32_t>{0});
}

TEST(Loader, AFarStepCostsNoMoreThanTheFirst) {
  Loader loader(counting_source(10000), {.sequences = 4, .length = 16, .micros = 2});
  HostStep far = step_of(loader, 1'000'000'000);
  EXPECT_EQ(samples_of(far).size(), 8u);
  // Epochs stay exact there: 8 samples a step, 624 an epoch, so 78 steps from an epoch's beginning hold all.
  int64_t first = 1'000'000'000 / 78 * 78;
  std::set<int32_t> seen;
  for (int64_t step = first; step < first + 78; ++step)
    for (auto [g, token] : samples_of(step_of(loader, step))) seen.insert(token);
  EXPECT_EQ(seen.size(), 624u);
}

/// Label of every position that counts, with the token it belongs to, over a whole pass.
std::vector<std::pair<int32_t, int32_t>> one_pass(const std::shared_ptr<const TokenSource>& source, int64_t sequences,
                                                  int64_t num_ranks = 1, int64_t micros = 1) {
  std::map<int64_t, std::pair<int32_t, int32_t>> out;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    Loader loader(source, {.sequences = sequences,
                           .length = 8,
                           .micros = micros,
                           .rank = rank,
                           .num_ranks = num_ranks,
                           .shuffle = false,
                           .once = true});
    for (int64_t n = 0; n < loader.num_steps(); ++n) {
      HostStep step = step_of(loader, n);
      for (const HostBatch& b : step.micros)
        for (size_t i = 0; i < b.tokens.size(); ++i) {
          EXPECT_GE(b.tokens[i], 0);
          EXPECT_LT(b.tokens[i], source->vocab_size());
          if (b.labels[i] != kIgnore) out[n * loader.tokens_per_step() + b.index[i]] = {b.tokens[i], b.labels[i]};
        }
    }
  }
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (auto& [at, pair] : out) pairs.push_back(pair);
  return pairs;
}

TEST(Loader, OnePassSeesEveryLabelOnceWhateverTheBatch) {
  for (int64_t tokens : {2, 8, 9, 10, 16, 17, 50, 57, 58}) {
    auto source = counting_source(tokens);
    std::vector<std::pair<int32_t, int32_t>> expected;
    for (int32_t i = 0; i + 1 < tokens; ++i) expected.emplace_back(i, i + 1);
    for (int64_t sequences : {1, 2, 3, 7})
      ASSERT_EQ(one_pass(source, sequences), expected) << tokens << " " << sequences;
    ASSERT_EQ(one_pass(source, 2, 3), expected);
    ASSERT_EQ(one_pass(source, 2, 2, 2), expected);
  }
}

TEST(Loader, DocumentMask) {
  //                        0   1   2   3   4   5   6   7   8   9  10  11  12
  std::vector<int32_t> t = {10, 11, 12, 20, 21, 22, 30, 40, 41, 42, 43, 44, 50};
  auto source = std::make_shared<VectorSource>(t, 100, std::vector<int64_t>{0, 3, 6, 7, 12});
  Loader loader(source, {.sequences = 1, .length = 4, .shuffle = false, .document_mask = true});
  HostBatch a = step_of(loader, 0).micros[0], b = step_of(loader, 1).micros[0], c = step_of(loader, 2).micros[0];
  EXPECT_EQ(a.tokens, (std::vector<int32_t>{10, 11, 12, 20}));
  EXPECT_EQ(a.starts, (std::vector<int32_t>{0, 0, 0, 3}));
  EXPECT_EQ(a.positions, (std::vector<int32_t>{0, 1, 2, 0}));
  EXPECT_EQ(a.labels, (std::vector<int32_t>{11, 12, kIgnore, 21}));
  EXPECT_EQ(a.position_order, (std::vector<int32_t>{0, 3, 1, 2}));
  EXPECT_EQ(b.tokens, (std::vector<int32_t>{21, 22, 30, 40}));
  EXPECT_EQ(b.starts, (std::vector<int32_t>{0, 0, 2, 3}));
  EXPECT_EQ(b.positions, (std::vector<int32_t>{0, 1, 0, 0}));
  EXPECT_EQ(b.labels, (std::vector<int32_t>{22, kIgnore, kIgnore, 41}));
  EXPECT_EQ(c.tokens, (std::vector<int32_t>{41, 42, 43, 44}));
  EXPECT_EQ(c.labels, (std::vector<int32_t>{42, 43, 44, kIgnore})) << "the next sample begins a document";
}

TEST(Loader, DocumentMaskInAPassThatEndsEarly) {
  std::vector<int32_t> t = {10, 11, 12, 20, 21, 22, 23};
  auto source = std::make_shared<VectorSource>(t, 100, std::vector<int64_t>{0, 3});
  Loader loader(source, {.sequences = 2, .length = 4, .shuffle = false, .document_mask = true, .once = true});
  ASSERT_EQ(loader.num_steps(), 1);
  HostBatch b = step_of(loader, 0).micros[0];
  EXPECT_EQ(b.labels, (std::vector<int32_t>{11, 12, kIgnore, 21, 22, 23, kIgnore, kIgnore}));
  EXPECT_EQ(b.starts, (std::vector<int32_t>{0, 0, 0, 3, 0, 0, 2, 3}));
}

TEST(Loader, APackedDocumentDoesNotSeeItsNeighbour) {
  // Faults of others: the loss of B moves when A changes. Rows of B must be the same bits.
  std::vector<int32_t> one(64), two;
  for (size_t i = 0; i < 64; ++i) one[i] = static_cast<int32_t>(i * 37 % 100);
  two = one;
  for (size_t i = 0; i < 20; ++i) two[i] = 99 - one[i];
  auto batch = [](const std::vector<int32_t>& tokens) {
    Loader loader(std::make_shared<VectorSource>(tokens, 100, std::vector<int64_t>{0, 20}),
                  {.sequences = 1, .length = 63, .shuffle = false, .document_mask = true});
    return step_of(loader, 0).micros[0];
  };
  HostBatch a = batch(one), b = batch(two);
  EXPECT_NE(a.tokens, b.tokens);
  EXPECT_EQ(a.labels[19], kIgnore);
  for (size_t i = 20; i < 63; ++i) {
    EXPECT_EQ(a.tokens[i], b.tokens[i]);
    EXPECT_EQ(a.labels[i], b.labels[i]);
    EXPECT_EQ(a.positions[i], static_cast<int32_t>(i - 20));
    EXPECT_EQ(a.starts[i], 20);
    EXPECT_EQ(b.starts[i], 20);
  }
}

}  // namespace
}  // namespace chiron
