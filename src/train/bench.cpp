#include "train/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/loader.h"
#include "data/synthetic.h"
#include "ops/all_cases.h"
#include "ops/gemm/gemm_blis.h"
#include "parallel/store.h"
#include "train/device_batch.h"
#include "train/device_stream.h"
#include "train/memory.h"
#include "train/scalars.h"
#include "train/setup.h"
#include "train/sources.h"
#include "train/weights.h"

namespace chiron {
namespace {

using Clock = std::chrono::steady_clock;

template <class F>
double seconds_of(F&& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

/// The linear products of a step of `micros` micro-batches.
std::vector<LinearProduct> products_of(const Plan& plan, int64_t micros) {
  const std::vector<LinearProduct> once = products_of(plan.ops);
  std::vector<LinearProduct> all;
  for (int64_t i = 0; i < micros; ++i) all.insert(all.end(), once.begin(), once.end());
  return all;
}

/// Each product on operands of its own sizes, written over again and again.
class Products {
 public:
  Products(std::vector<LinearProduct> list, int threads) : list_(std::move(list)), threads_(threads) {
    size_t a = 0, b = 0, c = 0;
    for (const LinearProduct& p : list_) {
      a = std::max(a, static_cast<size_t>(p.m * p.k));
      b = std::max(b, static_cast<size_t>(p.k * p.n));
      c = std::max(c, static_cast<size_t>(p.m * p.n));
      flops_ += 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    }
    auto fill = [](std::vector<float>& to, size_t n, uint32_t seed) {
      auto values = random_normal(static_cast<int64_t>(n), seed);
      to.assign(values.begin(), values.end());
    };
    fill(a_, a, 1);
    fill(b_, b, 2);
    c_.resize(c);
  }
  double flops() const { return flops_; }
  void run() {
    for (const LinearProduct& p : list_) {
      // x W^T, dy W, dy^T x: which operand is read as its transpose.
      const Operand2d<float> a =
          p.kind == LinearProduct::weight ? Operand2d<float>{a_.data(), 1, p.m} : Operand2d<float>{a_.data(), p.k, 1};
      const Operand2d<float> b =
          p.kind == LinearProduct::forward ? Operand2d<float>{b_.data(), 1, p.k} : Operand2d<float>{b_.data(), p.n, 1};
      product_on_blis_threads(threads_, p.m, p.n, p.k, a, b, c_.data(), p.n, Accum::overwrite);
    }
  }

 private:
  std::vector<LinearProduct> list_;
  int threads_;
  std::vector<float> a_, b_, c_;
  double flops_ = 0;
};

/// Takes the time of each op: on a GPU the device's own, between events.
class Stopwatch final : public Trace {
 public:
  explicit Stopwatch(Stream& s) : s_(s) {}
  void begin(const OpInfo& info) override {
    work_.begin(info);  // here alone it names its operands
    open_.push_back(calls_.size());
    calls_.emplace_back(s_.device());
    s_.record(*calls_.back().begin);
    calls_.back().start = Clock::now();
  }
  void end(const OpInfo& info) override {
    Call& call = calls_[open_.back()];
    open_.pop_back();
    call.op = info.name;
    call.seconds = std::chrono::duration<double>(Clock::now() - call.start).count();
    s_.record(*call.end);
  }
  /// Longest first. Waits for the stream.
  Figures shares() {
    struct Sum {
      int64_t calls = 0;
      double seconds = 0;
    };
    std::map<std::string, Sum> sums;
    for (const Call& call : calls_) {
      auto& sum = sums[call.op];
      ++sum.calls;
      sum.seconds += s_.on_gpu() ? call.end->seconds_since(*call.begin) : call.seconds;
    }
    std::vector<std::pair<std::string, Sum>> list(sums.begin(), sums.end());
    std::ranges::sort(list, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    Figures shares;
    const WorkByOp work = work_.total();
    for (const auto& [op, sum] : list)
      shares.push_back({{"op", op},
                        {"calls", sum.calls},
                        {"milliseconds", sum.seconds * 1e3},
                        {"flops", work.at(op).flops},
                        {"bytes", work.at(op).bytes}});
    return shares;
  }

 private:
  struct Call {
    explicit Call(Device device) : begin(std::make_unique<Event>(device)), end(std::make_unique<Event>(device)) {}
    std::string op;
    std::unique_ptr<Event> begin, end;
    Clock::time_point start;
    double seconds = 0;
  };
  Stream& s_;
  std::vector<Call> calls_;
  std::vector<size_t> open_;
  StepWork work_;
};

}  // namespace

Figures bench_step(const Options& options, int64_t steps, Log& log, const BenchWatcher& watcher) {
  ThreadPool pool(static_cast<int>(options.run.threads));
  DeviceStream device = open_stream(options.run.device, pool, log);
  Stream& s = device.stream;
  s.set_tf32(options.training.matmul_precision == MatmulPrecision::tf32);
  if (!s.on_gpu() && compute_dtype(options) != DType::f32)
    throw ConfigError("bench step compares with float32 products: set training.use_amp: false");
  const auto model = make_model(model_setup(options, data_vocabulary(options)));
  const SyntheticOptions text{.vocab_size = model->config().vocab_size};
  const Plan plan = make_plan(options, *model, s.device(), device.choices.get());
  check_memory(plan, options, *model, s.device(), log);
  tune_products(device, log);
  Mesh mesh = Mesh::single();
  const auto params = make_store(s, model->params(), store_setup(options, *model, mesh));
  initialize(s, *params, 1);
  Scalars scalars(s);
  TrainStep step(*model, *params, mesh, step_setup(options, *model), Stacks::like(plan.stacks, s.device()),
                 scalars.device());
  const TrainingOptions& t = options.training;
  Loader loader(std::make_shared<SyntheticSource>(text),
                {.sequences = t.batch_size, .length = t.seq_len, .micros = t.gradient_accumulation});
  HostStep host;
  DeviceBatches memory(s.device(), loader.options());
  auto run = [&](int64_t n) {
    loader.fill(n, host);
    const auto batches = memory.upload(s, host.micros);
    StepScalars values = scalars.read(s);
    values.step = n;
    values.learning_rate = 1e-4f;
    values.max_norm = 1;
    scalars.write(s, values);
    s.sync();
    return seconds_of([&] {
      step.run(s, batches);
      s.sync();
    });
  };
  Products products(s.on_gpu() ? std::vector<LinearProduct>{} : products_of(plan, t.gradient_accumulation),
                    pool.size());
  constexpr int64_t kWarmup = 3;
  // BLIS's threads spin for a while after a product: the other side's turn comes when they sleep.
  constexpr auto kQuiet = std::chrono::milliseconds(100);
  int64_t n = 0;
  watcher("warming up");
  for (; n < kWarmup; ++n) run(n);
  products.run();
  std::vector<double> step_times, product_times;
  for (int64_t i = 0; i < steps; ++i) {
    watcher(fmt::format("step {} of {}", i + 1, steps));
    if (!s.on_gpu()) std::this_thread::sleep_for(kQuiet);
    run(n++);  // brings the caches into the state of a run of steps
    step_times.push_back(run(n++));
    product_times.push_back(seconds_of([&] { products.run(); }));
  }
  const double seconds = median(step_times), of_products = median(product_times);
  const auto tokens = static_cast<double>(plan.tokens_per_step);
  Figures result = {{"parameters", plan.parameters},
                    {"vocab_size", text.vocab_size},
                    {"tokens_per_step", plan.tokens_per_step},
                    {"threads", pool.size()},
                    {"step_milliseconds", seconds * 1e3},
                    {"tokens_per_second", tokens / seconds},
                    {"tflop_per_second", plan.flops_per_token * tokens / seconds / 1e12}};
  if (!s.on_gpu()) {
    result["products_milliseconds"] = of_products * 1e3;
    result["products_gflop_per_second"] = products.flops() / of_products / 1e9;
    result["share_of_products"] = of_products / seconds;
  }
  std::this_thread::sleep_for(kQuiet);
  Stopwatch watch(s);
  s.set_trace(&watch);
  run(n++);
  result["ops"] = watch.shares();
  return result;
}

Figures bench_ops(int threads, const BenchWatcher& watcher) {
  ThreadPool pool(threads);
  Stream s({}, pool);
  Figures results;
  for_each_op_case(CaseUse::bench, [&](const OpCase& c) {
    watcher(c.op + ", " + c.name);
    const Timing t = time_case(c, DType::f32, s);
    results.push_back({{"op", c.op},
                       {"case", c.name},
                       {"milliseconds", t.seconds * 1e3},
                       {"gb_per_second", t.bytes / t.seconds / 1e9},
                       {"gflop_per_second", t.flops / t.seconds / 1e9}});
  });
  return results;
}

}  // namespace chiron
