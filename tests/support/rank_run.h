#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "support/gathered.h"
#include "support/tiny_run.h"
#include "train/check.h"

namespace chiron::tests {

/// What came out of training on some ranks, laid out as options.parallel says: of all of them together.
struct RankRun {
  /// Changes a rank's batches before each step; may be absent.
  using Change = std::function<void(HostStep&)>;

  std::vector<StepScalars> steps;  ///< as every rank saw them
  Gathered gradients, weights;     ///< of the first step; after the last
  StoreBytes bytes;                ///< of rank 0's store
  int64_t received = 0;            ///< by rank 0, in its second step

  /// Trains for three steps. Checks what must hold under any layout: ranks agree in scalars and weights, bit for bit.
  RankRun(const Options& options, int ranks, const Change& change = {}, bool split_weight_gradients = false) {
    std::mutex mutex;
    std::map<std::string, std::string> seen;  // weights as layers see them, by tensor rank and parameter
    run_thread_ranks(ranks, [&](Communicator& world) {
      TinyRun run(options, 1, split_weight_gradients, {}, &world);
      auto fill = [&](int64_t n) {
        run.loader.fill(n, run.host);
        if (change) change(run.host);
      };
      fill(0);
      run.run(run.host, 0, kRate, false);
      {
        std::lock_guard lock(mutex);
        gradients.add(gradient_parts(run.params, Which::mine));
      }
      std::vector<StepScalars> own;
      for (int64_t n = 0; n < 3; ++n) {
        fill(n);
        const int64_t before = world.bytes_received();
        own.push_back(run.run(run.host, n, kRate));
        if (n == 1 && world.rank() == 0) received = world.bytes_received() - before;
      }
      const auto visible = weights_in_use(run);
      {
        std::lock_guard lock(mutex);
        if (steps.empty()) steps = own;
        EXPECT_EQ(std::memcmp(steps.data(), own.data(), own.size() * sizeof(StepScalars)), 0) << world.rank();
        for (const auto& [name, bits] : visible)
          EXPECT_EQ(seen.emplace(name, bits).first->second, bits) << name << ", rank " << world.rank();
        if (world.rank() == 0) bytes = run.params.bytes();
        weights.add(weight_parts(run.params, Which::mine));
      }
      world.barrier(run.s);
      weights.expect_same_bits(weight_parts(run.params));
    });
  }

  /// Expects the same bits of another run.
  void expect_same(const RankRun& other, const std::string& what) const {
    EXPECT_EQ(std::memcmp(steps.data(), other.steps.data(), steps.size() * sizeof(StepScalars)), 0) << what;
    expect_close(gradients, other.gradients, 0, what);
    expect_close(weights, other.weights, 0, what);
  }

  /// Expects the losses, norms, gradients and weights of one rank; `tolerance` is that of all but the weights.
  void expect_like(const RankRun& one, double tolerance = 1e-5, double after = kCheckAfterTolerance) const {
    ASSERT_EQ(steps.size(), one.steps.size());
    for (size_t n = 0; n < steps.size(); ++n) {
      // Later steps start from weights that differ by rounding.
      const double allowed = n == 0 ? tolerance : std::max(tolerance, after);
      EXPECT_EQ(steps[n].tokens, one.steps[n].tokens);
      EXPECT_EQ(steps[n].applied, one.steps[n].applied);
      EXPECT_NEAR(steps[n].loss, one.steps[n].loss, tolerance * std::abs(one.steps[n].loss)) << "step " << n;
      EXPECT_NEAR(steps[n].grad_norm, one.steps[n].grad_norm, allowed * one.steps[n].grad_norm) << "step " << n;
    }
    expect_close(gradients, one.gradients, tolerance, "gradients");
    for (const auto& [name, want] : one.gradients.tensors())
      EXPECT_LE(after_error(weights.tensors().at(name).values, one.weights.tensors().at(name).values, want.values),
                after)
          << name;
  }

 private:
  /// At the 1e-2 of the reference dumps, signs of gradients near zero put one layout (tp 4) at 5.05e-4 of the 5e-4
  /// that weights may differ by.
  static constexpr float kRate = 3e-3f;

  /// As in Comparison (train/check.h).
  static double after_error(const std::vector<float>& got, const std::vector<float>& want,
                            const std::vector<float>& gradient) {
    double largest = 0, distance = 0, norm = 0;
    for (float g : gradient) largest = std::max(largest, std::abs(static_cast<double>(g)));
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::abs(static_cast<double>(gradient[i])) < 1e-4 * largest) continue;
      distance += std::pow(static_cast<double>(got[i]) - want[i], 2);
      norm += std::pow(want[i], 2);
    }
    return distance == 0 ? 0 : std::sqrt(distance / norm);
  }

  static std::map<std::string, std::string> weights_in_use(TinyRun& run) {
    std::map<std::string, std::string> all;
    for (Unit u = 0; u < run.model->units(); ++u) {
      if (std::ranges::none_of(run.held.units, [&](UnitRange range) { return range.contains(u); })) continue;
      run.params.use(run.s, u);
      for (Param p = 0; p < static_cast<Param>(run.params.specs().size()); ++p) {
        const ParamSpec& spec = run.params.specs()[static_cast<size_t>(p)];
        if (spec.unit != u) continue;
        const View w = run.params.weight(p, Form::compute);
        all[fmt::format("tp {} parameter {}", run.mesh.index(Axis::tp), spec.tied_to == kNoParam ? p : spec.tied_to)] =
            std::string(reinterpret_cast<const char*>(w.at), static_cast<size_t>(w.bytes()));
      }
      run.params.done(run.s, u);
    }
    return all;
  }
};

}  // namespace chiron::tests
