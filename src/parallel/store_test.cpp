// A store by itself, with small whole numbers for weights and gradients, whose sums are exact.

#include "parallel/store.h"

#include <gtest/gtest.h>

#include "comm/thread_ranks.h"
#include "core/device_testing.h"

namespace chiron {
namespace {

constexpr Unit kHead = 4;

ParamSpec spec_of(const std::string& name, Shape shape, Unit unit) {
  ParamSpec spec;
  spec.pieces = {{.name = name, .rows = shape[0]}};
  spec.shape = shape;
  spec.unit = unit;
  return spec;
}

/// Rows fewer than ranks, rows that ranks do not divide, a frozen weight, a constant, and a head that is perhaps tied.
std::vector<ParamSpec> some_specs(bool tied) {
  std::vector<ParamSpec> specs;
  auto constant = spec_of("table", {6}, kEveryUnit);
  constant.trainable = false;
  specs.push_back(constant);
  specs.push_back(spec_of("embedding", {7, 3}, 0));
  for (Unit u = 1; u < kHead; ++u) {
    specs.push_back(spec_of("a", {u == 2 ? 4 : 5, 40}, u));
    specs.push_back(spec_of("b", {1}, u));
  }
  specs.push_back(spec_of("frozen", {3, 2}, 2));
  specs.back().trainable = false;
  specs.push_back(spec_of("norm", {2}, kHead));
  auto head = spec_of("head", {7, 3}, kHead);
  if (tied) {
    head.pieces.clear();
    head.tied_to = 1;
  }
  specs.push_back(head);
  return specs;
}

float weight_value(Param p, int64_t i, int step) { return static_cast<float>((p * 7 + i * 3) % 50 + step); }
float gradient_value(Param p, int64_t i, int rank, int micro) {
  return static_cast<float>((p * 5 + i * (2 + rank) + micro * 11 + rank) % 23 - 9);
}

float at(View t, int64_t i) {
  return t.dtype == DType::bf16 ? static_cast<float>(t.data<bf16>()[i]) : t.data<float>()[i];
}

/// What a step does with a store, on one rank of several that differ in data.
class Executor {
 public:
  Executor(Stream& s, ParamStore& store, int rank) : s_(s), store_(store), rank_(rank) {
    for (const Shard& shard : store.owned())
      each(shard, [&](int64_t i, int64_t of) { shard.master.data<float>()[i] = weight_value(shard.param, of, 0); });
    store.refresh(s);
  }

  void step(int step, int micros) {
    store_.begin_step();
    for (int m = 0; m < micros; ++m) {
      for (Unit u = 0; u <= kHead; ++u) {
        store_.use(s_, u);
        if (u < kHead) store_.fetch(s_, u + 1);
        expect_weights(u, step);
        if (u == kHead) write_gradients(u, m);  // a head works in forward
        store_.done(s_, u);
      }
      for (Unit u = kHead; u >= 0; --u) {
        store_.use(s_, u);
        if (u > 0) store_.fetch(s_, u - 1);
        expect_weights(u, step);
        if (u < kHead) write_gradients(u, m);
        store_.done(s_, u);
        store_.reduce(s_, u, m + 1 == micros);
      }
    }
    store_.finish(s_);
  }

  /// Adds 1 to every trained weight.
  void update() {
    for (const Shard& shard : store_.shards())
      for (int64_t i = 0; i < shard.master.numel(); ++i) {
        const float w = shard.master.data<float>()[i] += 1;
        if (shard.compute.present()) shard.compute.data<bf16>()[i] = static_cast<bf16>(w);
      }
    store_.publish(s_);
  }

  void expect_gradients(int ranks, int micros) {
    const auto specs = store_.specs();
    for (const Shard& shard : store_.shards())
      each(shard, [&](int64_t i, int64_t of) {
        float want = 0;
        for (Param p = 0; p < static_cast<Param>(specs.size()); ++p)
          if (p == shard.param || specs[static_cast<size_t>(p)].tied_to == shard.param)
            for (int r = 0; r < ranks; ++r)
              for (int m = 0; m < micros; ++m) want += gradient_value(p, of, r, m);
        ASSERT_EQ(shard.grad.data<float>()[i], want) << "parameter " << shard.param << ", element " << of;
      });
  }

 private:
  /// f(element of the shard, element of the parameter)
  template <class F>
  void each(const Shard& shard, F f) {
    const int64_t first = shard.first_row * (shard.master.shape.rank == 2 ? shard.master.shape[1] : 1);
    for (int64_t i = 0; i < shard.master.numel(); ++i) f(i, first + i);
  }
  void expect_weights(Unit u, int step) {
    for (Param p = 0; p < static_cast<Param>(store_.specs().size()); ++p) {
      const ParamSpec& spec = store_.specs()[static_cast<size_t>(p)];
      if (spec.unit != u) continue;
      const Param owner = spec.tied_to == kNoParam ? p : spec.tied_to;
      const View w = store_.weight(p, Form::compute);
      ASSERT_EQ(w.shape, spec.shape);
      for (int64_t i = 0; i < w.numel(); ++i)
        ASSERT_EQ(at(w, i), weight_value(owner, i, spec.trainable ? step : 0))
            << "parameter " << p << ", element " << i;
    }
  }
  void write_gradients(Unit u, int micro) {
    for (Param p = 0; p < static_cast<Param>(store_.specs().size()); ++p) {
      const ParamSpec& spec = store_.specs()[static_cast<size_t>(p)];
      if (spec.unit != u || !spec.trainable) continue;
      Accum accum;
      const Tensor g = store_.grad(p, accum);
      ASSERT_EQ(g.shape, spec.shape);
      for (int64_t i = 0; i < g.numel(); ++i) {
        float& to = g.data<float>()[i];
        to = (accum == Accum::add ? to : 0) + gradient_value(p, i, rank_, micro);
      }
    }
  }

  Stream& s_;
  ParamStore& store_;
  int rank_;
};

TEST(Store, SumsGradientsAndRenewsWeightsAtEveryStageOfZero) {
  for (const bool tied : {false, true})
    for (const DType compute : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 3, 4})
        for (const int zero : {0, 1, 2, 3})
          for (const int shard : {ranks, ranks == 4 && zero > 0 ? 2 : 0})
            for (const bool split : {false, true}) {
              if (shard == 0) continue;
              SCOPED_TRACE(testing::Message() << "tied " << tied << " " << name_of(compute) << ", " << ranks
                                              << " ranks, zero " << zero << " over " << shard << ", split " << split);
              const auto specs = some_specs(tied);
              run_thread_ranks(ranks, [&](Communicator& world) {
                ThreadPool pool(1);
                Stream s({}, pool);
                Mesh mesh(world, {.shard = shard});
                const auto store = make_store(
                    s, specs, {.compute = compute, .zero = zero, .mesh = &mesh, .split_weight_gradients = split});
                Executor executor(s, *store, world.rank());
                for (int step = 0; step < 2; ++step)
                  for (const int micros : {1, 3}) {
                    executor.step(2 * step + micros / 2, micros);
                    executor.expect_gradients(ranks, micros);
                    executor.update();
                  }
              });
              if (HasFatalFailure()) return;
            }
}

TEST(Store, SharesOutStateByRows) {
  const auto specs = some_specs(false);
  Stream s = Stream::dry({});
  auto bytes = [&](int ranks, int zero, DType compute) {
    Mesh mesh = Mesh::planned({}, ranks, 0);
    return make_store(s, specs, {.compute = compute, .zero = zero, .mesh = &mesh})->bytes();
  };
  const StoreBytes one = bytes(1, 3, DType::f32);
  EXPECT_EQ(one.buffers, 0);
  EXPECT_EQ(bytes(4, 0, DType::f32).total(), one.total());
  // Every tensor begins at a multiple of 256 bytes: only the larger ones shrink.
  const int64_t numel[] = {5 * 40, 4 * 40, 5 * 40};
  int64_t whole = 0, share = 0;
  for (int64_t n : numel) whole += (n * 4 + 255) / 256 * 256;
  for (int64_t rows : {2, 1, 2}) share += (rows * 40 * 4 + 255) / 256 * 256;
  EXPECT_EQ(bytes(4, 1, DType::f32).optimizer, one.optimizer - 2 * (whole - share));
  EXPECT_EQ(bytes(4, 1, DType::f32).buffers, 0);
  EXPECT_EQ(bytes(4, 2, DType::f32).gradients, one.gradients - (whole - share));
  EXPECT_GT(bytes(4, 2, DType::f32).buffers, 0);
  EXPECT_EQ(bytes(4, 3, DType::f32).weights, one.weights - (whole - share));
  EXPECT_GT(bytes(4, 3, DType::f32).buffers, bytes(4, 2, DType::f32).buffers);
  EXPECT_LT(bytes(4, 1, DType::bf16).weights, bytes(1, 1, DType::bf16).weights);
}

TEST(Store, CountsAndSavesEachElementOnce) {
  const auto specs = some_specs(true);
  int64_t trained = 0, all = 0;
  for (const ParamSpec& spec : specs) {
    if (spec.tied_to != kNoParam || spec.unit == kEveryUnit) continue;
    all += spec.shape.numel();
    if (spec.trainable) trained += spec.shape.numel();
  }
  Stream s = Stream::dry({});
  for (const MeshSizes sizes : {MeshSizes{.dp = 12}, MeshSizes{.cp = 2, .dp = 6, .shard = 3},
                                MeshSizes{.tp = 3, .dp = 4}, MeshSizes{.dp = 6, .pp = 2}})
    for (const int zero : {0, 1, 2, 3}) {
      int64_t counted = 0, saved = 0;
      for (int rank = 0; rank < 12; ++rank) {
        Mesh mesh = Mesh::planned(sizes, 12, rank);
        const auto units = units_of_stage(kHead + 1, mesh.size(Axis::pp), 1, mesh.index(Axis::pp));
        const auto store = make_store(s, specs, {.zero = zero, .mesh = &mesh, .units = units});
        for (const Shard& shard : store->counted()) counted += shard.grad.numel();
        for (const Shard& shard : store->owned())
          if (store->saves(shard.param)) saved += shard.master.numel();
      }
      EXPECT_EQ(counted, trained) << sizes.str() << " zero " << zero;
      EXPECT_EQ(saved, all) << sizes.str() << " zero " << zero;
    }
}

TEST(Store, SumsWhatTensorRanksHaveTogether) {
  // Rank r of 4 has rows of its own (q), and rows that it shares with a neighbour (k); all hold the norm.
  for (const int zero : {0, 2})
    run_thread_ranks(8, [&](Communicator& world) {
      ThreadPool pool(1);
      Stream s({}, pool);
      Mesh mesh(world, {.tp = 4});
      const int r = mesh.index(Axis::tp), d = mesh.index(Axis::dp);
      std::vector<ParamSpec> specs{spec_of("q", {5, 3}, 1), spec_of("norm", {3}, 1), spec_of("bias", {3}, 1),
                                   spec_of("head", {2}, 2)};
      specs[0].pieces = {{.name = "q", .rows = 3}, {.name = "k", .rows = 2, .holders = 2, .mine = r % 2 == 0}};
      specs[0].tp_dim = 0;
      specs[1].summand = true;
      const auto store = make_store(s, specs, {.zero = zero, .mesh = &mesh});
      store->begin_step();
      for (Param p = 0; p < 3; ++p) {
        Accum accum;
        const Tensor g = store->grad(p, accum);
        for (int64_t i = 0; i < g.numel(); ++i) g.data<float>()[i] = static_cast<float>((r + 1) * (d + 1) * (i + 1));
      }
      for (Unit u = 2; u >= 0; --u) store->reduce(s, u, true);
      store->finish(s);
      const int of_neighbours = (r / 2 * 2 + 1) + (r / 2 * 2 + 2);
      for (const Shard& shard : store->shards()) {
        const int64_t cols = shard.grad.shape.rank == 2 ? 3 : 1;
        for (int64_t i = 0; i < shard.grad.numel(); ++i) {
          const int64_t of = shard.first_row * cols + i;
          int want = 3 * static_cast<int>(of + 1);  // d = 0, 1
          if (shard.param == 0) want *= of / 3 < 3 ? r + 1 : of_neighbours;
          if (shard.param == 1) want *= 1 + 2 + 3 + 4;
          if (shard.param == 2) want *= r + 1;
          if (shard.param == 3) want = 0;  // nothing used it
          EXPECT_EQ(shard.grad.data<float>()[i], static_cast<float>(want)) << shard.param << " " << of << " rank " << r;
        }
      }
      double counted = 0;
      for (const Shard& shard : store->counted()) counted += static_cast<double>(shard.grad.numel());
      Tensor sum{reinterpret_cast<uintptr_t>(&counted), DType::f64, {1}};
      world.all_reduce(s, sum, Reduce::sum);
      EXPECT_EQ(counted, 4 * 9 + 2 * 6 + 3 + 3 + 2);
    });
}

TEST(Store, RefusesWhatWouldReadWeightsThatAreNotThere) {
  const auto specs = some_specs(false);
  Stream s = Stream::dry({});
  Mesh mesh = Mesh::planned({}, 2, 0);
  const auto store = make_store(s, specs, {.zero = 3, .mesh = &mesh});
  EXPECT_THROW(store->weight(2, Form::compute), Bug);
  store->use(s, 1);
  EXPECT_NO_THROW(store->weight(2, Form::compute));
  EXPECT_THROW(store->fetch(s, 3), Bug);
  store->done(s, 1);
  EXPECT_NO_THROW(store->fetch(s, 3));
  Accum accum;
  store->grad(2, accum);
  EXPECT_THROW(store->grad(6, accum), Bug);
}

}  // namespace
}  // namespace chiron
