#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/gpu_testing.h"
#include "core/stack.h"

namespace chiron {

/// Tests that hold on every device, for suites of TEST_P:
///   using Norm = OnDevice;
///   INSTANTIATE_TEST_SUITE_P(Cpu, Norm, testing::Values(kCpu));
///   INSTANTIATE_TEST_SUITE_P(Gpu, Norm, testing::Values(kGpu));
inline constexpr Device kCpu{};
class OnDevice : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam() == kCpu) return;
    if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

/// An array in the memory of a stream's device.
template <class T>
class DeviceArray {
 public:
  DeviceArray(Stream& s, const std::vector<T>& values)
      : s_(s), size_(values.size()), memory_(s.device(), static_cast<int64_t>(size_ * sizeof(T))) {
    write(values);
  }
  void write(const std::vector<T>& values) {
    CHECK(values.size() == size_);
    s_.upload(bytes(), values.data());
  }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    s_.download(values.data(), bytes());
    return values;
  }
  T* data() const { return reinterpret_cast<T*>(memory_.at()); }
  Tensor tensor(Shape shape) const { return {memory_.at(), dtype_of<T>(), shape}; }
  Tensor tensor() const { return tensor({static_cast<int64_t>(size_)}); }

 private:
  Tensor bytes() const { return {memory_.at(), DType::u8, {memory_.bytes()}}; }
  Stream& s_;
  size_t size_;
  Buffer memory_;
};

}  // namespace chiron
