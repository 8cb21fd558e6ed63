// Times products and attention on the GPU at the sizes of real training steps: median of 15 calls after warm-up, by the
// device's events, on random data. A line per shape and pass.
//   build/cuda/chiron_gpu_bench
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_choices.h"

namespace chiron {
namespace {

constexpr Device kDevice{DeviceKind::gpu, 0};

/// Device memory filled with normal numbers, repeated every 2^20 elements.
class Data {
 public:
  Data(Stream& s, DType dtype, Shape shape) : buffer_(s.device(), shape.numel() * size_of(dtype)) {
    tensor_ = {buffer_.at(), dtype, shape};
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    constexpr int64_t kPeriod = (int64_t{1} << 20) + 31;  // no divisor of any row
    const int64_t n = shape.numel(), piece = std::min(n, kPeriod);
    by_gpu_float(dtype, [&]<class T>() {
      std::vector<T> values(static_cast<size_t>(piece));
      for (T& v : values) v = static_cast<T>(normal(engine));
      for (int64_t i = 0; i < n; i += piece)
        s.upload({tensor_.at + static_cast<uintptr_t>(i * size_of(dtype)), dtype, {std::min(piece, n - i)}},
                 values.data());
    });
    s.sync();
  }
  Tensor operator*() const { return tensor_; }

 private:
  Buffer buffer_;
  Tensor tensor_;
};

/// Seconds of one call; `work` gets the scratch memory that a dry call asked for.
double seconds(Stream& s, const std::function<void(Stream&, Stack&)>& work) {
  Stack need = Stack::dry();
  Stream dry = Stream::dry(s.device());
  dry.set_gemm_choices(s.gemm_choices());
  work(dry, need);
  Stack temp(s.device(), need.peak());
  constexpr int kWarm = 3, kRuns = 15;
  for (int i = 0; i < kWarm; ++i) work(s, temp);
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    Event from(s.device()), to(s.device());
    s.record(from);
    work(s, temp);
    s.record(to);
    times.push_back(to.seconds_since(from));
  }
  std::ranges::nth_element(times, times.begin() + kRuns / 2);
  return times[kRuns / 2];
}

void report(const std::string& what, double time, double flops) {
  fmt::print("{:<58} {:>9.3f} ms {:>7.1f} TFLOP/s\n", what, time * 1e3, flops / time * 1e-12);
  std::fflush(stdout);
}

void product(Stream& s, int64_t m, int64_t n, int64_t k, Op op_a, Op op_b, DType out, Accum accum) {
  Data a(s, DType::bf16, op_a == Op::none ? Shape{m, k} : Shape{k, m});
  Data b(s, DType::bf16, op_b == Op::none ? Shape{k, n} : Shape{n, k});
  Data c(s, out, {m, n});
  auto letter = [](Op op) { return op == Op::none ? 'N' : 'T'; };
  const std::string name = fmt::format("{} x {} x {} {}{} bf16 to {}{}", m, n, k, letter(op_a), letter(op_b),
                                       name_of(out), accum == Accum::add ? ", added" : "");
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  auto work = [&](Stream& t, Stack& temp) { gemm(t, *c, accum, *a, op_a, *b, op_b, temp); };
  report(name + ", own", seconds(s, work), flops);
  GemmChoices choices(s.device());
  if (!choices.blaslt()) return;
  Stream dry = Stream::dry(s.device());
  Stack need = Stack::dry();
  dry.set_gemm_choices(&choices);
  work(dry, need);
  choices.tune(s);
  s.set_gemm_choices(&choices);
  report(name + ", chosen", seconds(s, work), flops);
  s.set_gemm_choices(nullptr);
}

void attention_of(Stream& s, int64_t sequences, int64_t heads, int64_t kv_heads, int64_t length, int64_t dim) {
  const int64_t rows = sequences * length, q_width = heads * dim, kv_width = kv_heads * dim;
  const int64_t width = q_width + 2 * kv_width;
  Data qkv(s, DType::bf16, {rows, width}), dqkv(s, DType::bf16, {rows, width});
  Data o(s, DType::bf16, {rows, q_width}), d_o(s, DType::bf16, {rows, q_width}), lse(s, DType::f32, {rows, heads});
  AttentionShape shape;
  shape.sequences = sequences;
  shape.q_length = shape.k_length = length;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = dim;
  shape.scale = 1 / std::sqrt(static_cast<float>(dim));
  auto cut = [&](Tensor t, int part) {
    const Rows all(t);
    return part == 0 ? all.columns(0, q_width) : all.columns(q_width + (part - 1) * kv_width, kv_width);
  };
  const std::string name = fmt::format("attention B{} H{} K{} T{} D{}", sequences, heads, kv_heads, length, dim);
  // Causal: half of T x T counts.
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(length) * static_cast<double>(q_width);
  report(name + ", forward", seconds(s,
                                     [&](Stream& t, Stack& temp) {
                                       attention(t, *o, *lse, cut(*qkv, 0), cut(*qkv, 1), cut(*qkv, 2), shape, {}, temp);
                                     }),
         flops);
  report(name + ", backward",
         seconds(s,
                 [&](Stream& t, Stack& temp) {
                   attention_backward(t, cut(*dqkv, 0), cut(*dqkv, 1), cut(*dqkv, 2), *d_o, cut(*qkv, 0), cut(*qkv, 1),
                                      cut(*qkv, 2), *o, *lse, shape, {}, temp);
                 }),
         2.5 * flops);
}

void run() {
  ThreadPool pool(1);
  Stream s(kDevice, pool);
  fmt::print("{}, products by {}\n", gpu::traits(0).name, GemmChoices(kDevice).library());
  product(s, 8192, 8192, 8192, Op::none, Op::none, DType::bf16, Accum::overwrite);
  product(s, 8192, 8192, 8192, Op::none, Op::transpose, DType::bf16, Accum::overwrite);
  product(s, 8192, 8192, 8192, Op::transpose, Op::none, DType::f32, Accum::add);
  // GPT-2 124M, 65,536 tokens: qkv and the MLP forward, backward to the input, to the weight.
  constexpr int64_t kTokens = 65536;
  product(s, kTokens, 2304, 768, Op::none, Op::transpose, DType::bf16, Accum::overwrite);
  product(s, kTokens, 3072, 768, Op::none, Op::transpose, DType::bf16, Accum::overwrite);
  product(s, kTokens, 768, 3072, Op::none, Op::transpose, DType::bf16, Accum::overwrite);
  product(s, kTokens, 768, 768, Op::none, Op::transpose, DType::bf16, Accum::overwrite);
  product(s, kTokens, 768, 3072, Op::none, Op::none, DType::bf16, Accum::overwrite);
  product(s, 3072, 768, kTokens, Op::transpose, Op::none, DType::f32, Accum::add);
  product(s, 768, 768, kTokens, Op::transpose, Op::none, DType::f32, Accum::add);
  attention_of(s, 64, 12, 12, 1024, 64);
  attention_of(s, 16, 25, 25, 1024, 64);
  attention_of(s, 4, 32, 8, 4096, 64);
  attention_of(s, 16, 12, 2, 1024, 128);
  attention_of(s, 2, 32, 8, 4096, 128);
}

}  // namespace
}  // namespace chiron

int main() {
  try {
    chiron::run();
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
