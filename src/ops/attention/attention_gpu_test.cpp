#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/gpu_testing.h"
#include "ops/attention/attention.h"
#include "ops/op_case.h"

namespace chiron {
namespace {

/// q, k and v in one array, as the model has them, with all that both ops write, on the GPU. Each sequence is the same.
struct Call {
  AttentionShape shape;
  DType dtype;
  ThreadPool pool{1};
  Stream s{kGpu, pool};
  Stack memory, temp{kGpu, int64_t{64} << 20};
  Tensor qkv, dqkv, o, d_o, lse;

  Call(DType dtype_, int64_t sequences, int64_t heads, int64_t kv_heads, int64_t length, int64_t dim)
      : dtype(dtype_),
        memory(kGpu, sequences * length * (heads + kv_heads) * dim * 4 * size_of(dtype_) +
                         sequences * length * heads * 4 + 8 * Stack::kAlign) {
    shape.sequences = sequences, shape.q_length = shape.k_length = length;
    shape.heads = heads, shape.kv_heads = kv_heads, shape.head_dim = dim;
    shape.scale = 1 / std::sqrt(static_cast<float>(dim));
    const int64_t rows = sequences * length;
    qkv = memory.push(dtype, {rows, (heads + 2 * kv_heads) * dim});
    dqkv = memory.push(dtype, qkv.shape);
    o = memory.push(dtype, {rows, heads * dim});
    d_o = memory.push(dtype, o.shape);
    lse = memory.push(DType::f32, {rows, heads});
    fill(qkv, 1);
    fill(d_o, 2);
  }

  Rows q(const Tensor& t) const { return Rows(t).columns(0, shape.heads * shape.head_dim); }
  Rows k(const Tensor& t) const { return Rows(t).columns(shape.heads * shape.head_dim, width()); }
  Rows v(const Tensor& t) const { return Rows(t).columns(shape.heads * shape.head_dim + width(), width()); }
  int64_t width() const { return shape.kv_heads * shape.head_dim; }

  void forward() { attention(s, o, lse, q(qkv), k(qkv), v(qkv), shape, {}, temp); }
  void backward() {
    attention_backward(s, q(dqkv), k(dqkv), v(dqkv), d_o, q(qkv), k(qkv), v(qkv), o, lse, shape, {}, temp);
  }

  /// Row r of sequence 0.
  std::vector<double> row(const Tensor& t, int64_t r) {
    std::vector<unsigned char> bytes(static_cast<size_t>(t.cols() * size_of(t.dtype)));
    s.download(bytes.data(), t.slice(r, r + 1));
    std::vector<double> out;
    by_gpu_float(t.dtype, [&]<class T>() {
      for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
        T x;
        std::memcpy(&x, &bytes[i], sizeof x);
        out.push_back(static_cast<double>(static_cast<float>(x)));
      }
    });
    return out;
  }

 private:
  void fill(const Tensor& t, uint32_t seed) {
    const int64_t length = shape.q_length;
    const auto random = random_normal(length * t.cols(), seed);
    by_gpu_float(dtype, [&]<class T>() {
      std::vector<T> x;
      for (double value : random) x.push_back(T(static_cast<float>(value)));
      s.upload(t.slice(0, length), x.data());
      s.sync();
    });
    for (int64_t b = 1; b < shape.sequences; ++b) s.copy(t.slice(b * length, (b + 1) * length), t.slice(0, length));
  }
};

bool any_nan(const std::vector<double>& x) {
  return std::ranges::any_of(x, [](double value) { return std::isnan(value); });
}

TEST(GpuAttention, NanIsNotHidden) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  constexpr int64_t kLength = 70, kBad = 40, kDim = 16;
  for (DType dtype : {DType::f32, DType::bf16})
    for (bool in_key : {false, true}) {
      Call c(dtype, 1, 1, 1, kLength, kDim);
      by_gpu_float(dtype, [&]<class T>() {
        const T nan = T(std::numeric_limits<float>::quiet_NaN());
        c.s.upload({c.qkv.at + static_cast<uintptr_t>((kBad * 3 + in_key) * kDim * size_of(dtype)), dtype, {1}}, &nan);
        c.s.sync();
      });
      c.forward();
      c.backward();
      EXPECT_TRUE(any_nan(c.row(c.o, kBad)) && any_nan(c.row(c.lse, kBad)));
      EXPECT_FALSE(any_nan(c.row(c.o, kBad - 1)) || any_nan(c.row(c.lse, kBad - 1)));
      EXPECT_EQ(any_nan(c.row(c.o, kLength - 1)), in_key);
      const auto bad = c.row(c.dqkv, kBad), first = c.row(c.dqkv, 0);
      EXPECT_TRUE(std::isnan(bad[0]) && std::isnan(first[kDim]) && std::isnan(first[2 * kDim]));
    }
}

// Not a test: prints what the shapes of training runs reach, median of 15 calls. Causal: half of the FLOPs count.
TEST(GpuAttention, DISABLED_Speed) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  struct {
    int64_t sequences, heads, kv_heads, length, dim;
  } shapes[] = {{64, 12, 12, 1024, 64}, {16, 25, 25, 1024, 64}, {4, 32, 8, 4096, 64}, {32, 14, 2, 1024, 64},
                {16, 12, 2, 1024, 128}, {2, 32, 8, 4096, 128},  {2, 32, 8, 8192, 128}};
  for (const auto& n : shapes)
    for (DType dtype : {DType::bf16, DType::f16}) {
      Call c(dtype, n.sequences, n.heads, n.kv_heads, n.length, n.dim);
      auto seconds = [&](auto&& call) {
        std::vector<double> times;
        for (int i = 0; i < 18; ++i) {
          Event begin(kGpu), end(kGpu);
          c.s.record(begin);
          call();
          c.s.record(end);
          c.s.sync();
          if (i >= 3) times.push_back(end.seconds_since(begin));
        }
        std::ranges::nth_element(times, times.begin() + 7);
        return times[7];
      };
      const double forward = seconds([&] { c.forward(); }), backward = seconds([&] { c.backward(); });
      const double flops = 2e-12 * static_cast<double>(n.sequences * n.heads * n.length * n.length * n.dim);
      fmt::print("B{} H{} K{} T{} D{} {}: forward {:.3f} ms {:.0f} TFLOP/s, backward {:.3f} ms {:.0f} TFLOP/s\n",
                 n.sequences, n.heads, n.kv_heads, n.length, n.dim, name_of(dtype), 1e3 * forward, flops / forward,
                 1e3 * backward, 2.5 * flops / backward);
    }
}

}  // namespace
}  // namespace chiron
