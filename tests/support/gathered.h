#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/state.h"

namespace chiron::tests {

/// Whole tensors by name, put together from the parts that ranks have, whatever the layout. f32, in host memory.
class Gathered {
 public:
  struct Whole {
    Shape shape;
    std::vector<float> values;
    std::vector<int> times;  ///< how often each element was given
  };

  void add(const std::vector<StatePart>& parts) {
    for (const StatePart& part : parts) {
      Whole& whole = tensors_[part.name];
      if (whole.values.empty()) {
        whole.shape = part.global;
        whole.values.resize(static_cast<size_t>(part.global.numel()));
        whole.times.resize(whole.values.size());
      }
      EXPECT_EQ(whole.shape, part.global) << part.name;
      for_each(part, [&](size_t at, float value) {
        whole.values[at] = value;
        ++whole.times[at];
      });
    }
  }

  /// Whether these parts have the bits of what was gathered.
  void expect_same_bits(const std::vector<StatePart>& parts) const {
    for (const StatePart& part : parts) {
      ASSERT_TRUE(tensors_.contains(part.name)) << part.name;
      int64_t other = 0;
      for_each(part, [&, &values = tensors_.at(part.name).values](size_t at, float value) {
        other += std::memcmp(&values[at], &value, sizeof value) != 0;
      });
      EXPECT_EQ(other, 0) << part.name;
    }
  }

  const std::map<std::string, Whole>& tensors() const { return tensors_; }

 private:
  /// Calls f(element of the whole tensor, value) for each element of a part.
  template <class F>
  static void for_each(const StatePart& part, F&& f) {
    const int64_t cols = part.global[part.global.rank - 1];
    for (int64_t r = 0; r < part.data.rows; ++r)
      for (int64_t c = 0; c < part.data.cols; ++c) {
        const float value = part.data.data<float>()[r * part.data.ld + c];
        int64_t at = part.part.offset[0] + c;
        if (part.global.rank == 2)
          at = (part.part.offset[0] + (part.transposed ? c : r)) * cols + part.part.offset[1] +
               (part.transposed ? r : c);
        f(static_cast<size_t>(at), value);
      }
  }

  std::map<std::string, Whole> tensors_;
};

/// The same tensors, each element given once, and each tensor within `relative` of its norm. 0: the same bits.
inline void expect_close(const Gathered& got, const Gathered& want, double relative, const std::string& what) {
  ASSERT_EQ(got.tensors().size(), want.tensors().size()) << what;
  for (const auto& [name, whole] : want.tensors()) {
    ASSERT_TRUE(got.tensors().contains(name)) << what << ": " << name;
    const Gathered::Whole& other = got.tensors().at(name);
    ASSERT_EQ(other.shape, whole.shape) << what << ": " << name;
    EXPECT_EQ(other.times, std::vector<int>(other.times.size(), 1)) << what << ": " << name;
    double distance = 0, norm = 0;
    for (size_t i = 0; i < whole.values.size(); ++i) {
      distance += std::pow(static_cast<double>(other.values[i]) - whole.values[i], 2);
      norm += std::pow(whole.values[i], 2);
    }
    EXPECT_LE(std::sqrt(distance), relative * std::sqrt(norm))
        << what << ": " << name << " of norm " << std::sqrt(norm);
  }
}

}  // namespace chiron::tests
