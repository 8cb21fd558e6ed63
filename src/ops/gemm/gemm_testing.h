#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/gemm/gemm_gpu.h"
#include "ops/op_case.h"

namespace chiron {

/// A product with numbers in it, on the host in double and on the GPU.
class ProductNumbers {
 public:
  struct Sizes {
    int64_t m, n, k;
    Op a = Op::none, b = Op::transpose;
    bool bias = false;
    enum Addend : uint8_t { none, apart, same } addend = none;
  };

  ProductNumbers(Stream& s, const Sizes& z, DType dtype, DType out) : s_(s), z_(z) {
    p_ = {rows(z.m, z.n, out, 1), rows(z.m, z.k, dtype, 2, z.a), z.a, rows(z.k, z.n, dtype, 3, z.b), z.b};
    if (z.bias) p_.bias = {rows(1, z.n, out, 4).at, out, {z.n}};
    if (z.addend == Sizes::apart) p_.addend = rows(z.m, z.n, out, 5);
    if (z.addend == Sizes::same) p_.addend = p_.c;
    want_.resize(static_cast<size_t>(z.m * z.n));
    auto at = [](const std::vector<double>& v, int64_t ld, int64_t i, int64_t j, Op op = Op::none) {
      return v[static_cast<size_t>(op == Op::none ? i * ld + j : j * ld + i)];
    };
    for (int64_t i = 0; i < z.m; ++i)
      for (int64_t j = 0; j < z.n; ++j) {
        double sum = z.bias ? host_[3][static_cast<size_t>(j)] : 0;
        if (z.addend != Sizes::none) sum += at(z.addend == Sizes::same ? host_[0] : host_.back(), p_.addend.ld, i, j);
        for (int64_t k = 0; k < z.k; ++k) sum += at(host_[1], p_.a.ld, i, k, z.a) * at(host_[2], p_.b.ld, k, j, z.b);
        want_[static_cast<size_t>(i * z.n + j)] = sum;
      }
  }

  const Product& product() const { return p_; }

  /// The bits of C and what lies between its rows.
  std::vector<std::byte> bits() {
    std::vector<std::byte> all(static_cast<size_t>(p_.c.rows * p_.c.ld * size_of(p_.c.dtype)));
    s_.download(all.data(), {p_.c.at, DType::u8, {static_cast<int64_t>(all.size())}});
    return all;
  }

  /// ||C - what it should be|| / ||what it should be||; checks that nothing between the rows was touched.
  double error() {
    const std::vector<double> got = download(p_.c);
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < z_.m; ++i)
      for (int64_t j = 0; j < p_.c.ld; ++j) {
        const auto at = static_cast<size_t>(i * p_.c.ld + j);
        if (j >= z_.n) {
          EXPECT_EQ(got[at], host_[0][at]) << "row " << i << " behind its end";
          continue;
        }
        const double want = want_[static_cast<size_t>(i * z_.n + j)];
        difference += (got[at] - want) * (got[at] - want);
        norm += want * want;
      }
    return std::sqrt(difference / norm);
  }

 private:
  /// Rows of random numbers whose starts are aligned and that have something between them.
  Rows rows(int64_t m, int64_t n, DType dtype, uint32_t seed, Op op = Op::none) {
    if (op == Op::transpose) std::swap(m, n);
    const int64_t ld = (n + 8) / 8 * 8 + 8;
    std::vector<double> values = random_normal(m * ld, seed);
    by_gpu_float(dtype, [&]<class T>() {
      std::vector<T> narrow;
      for (double& x : values) {
        narrow.push_back(T(static_cast<float>(x)));
        x = static_cast<double>(static_cast<float>(narrow.back()));
      }
      Tensor t{memory_.emplace_back(s_.device(), m * ld * size_of(dtype)).at(), dtype, {m, ld}};
      s_.upload(t, narrow.data());
    });
    host_.push_back(std::move(values));
    return Rows(Tensor{memory_.back().at(), dtype, {m, ld}}).columns(0, n);
  }

  std::vector<double> download(const Rows& r) {
    std::vector<double> values;
    by_gpu_float(r.dtype, [&]<class T>() {
      std::vector<T> narrow(static_cast<size_t>(r.rows * r.ld));
      s_.download(narrow.data(), {r.at, r.dtype, {r.rows, r.ld}});
      for (T x : narrow) values.push_back(static_cast<double>(static_cast<float>(x)));
    });
    return values;
  }

  Stream& s_;
  Sizes z_;
  Product p_;
  std::vector<Buffer> memory_;
  std::vector<std::vector<double>> host_;
  std::vector<double> want_;
};

inline double product_tolerance(DType out) { return out == DType::f32 ? 1e-5 : out == DType::f16 ? 5e-4 : 4e-3; }

}  // namespace chiron
