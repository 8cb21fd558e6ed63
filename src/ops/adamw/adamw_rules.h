#pragma once

#include <cmath>
#include <cstdint>

namespace chiron {

/// What is the same for all elements of a step.
struct AdamWCoefficients {
  float clip, beta1, beta2, rest1, rest2;  // rest = 1 - beta
  float rate;                              // lr / (1 - b1^t)
  float root;                              // 1 / sqrt(1 - b2^t)
  float eps, decay;                        // decay = lr * weight_decay
};

/// For the CPU and for a GPU's kernel; V is StepScalars, O AdamWOptions. A template because a compiler need not take
/// powers and roots for constant expressions.
template <class V, class O>
constexpr AdamWCoefficients adamw_coefficients(const V& v, const O& o) {
  const double t = static_cast<double>(v.applied), b1 = o.beta1, b2 = o.beta2, lr = v.learning_rate;
  return {.clip = v.clip_factor,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .rest1 = static_cast<float>(1 - b1),
          .rest2 = static_cast<float>(1 - b2),
          .rate = static_cast<float>(lr / (1 - std::pow(b1, t))),
          .root = static_cast<float>(1 / std::sqrt(1 - std::pow(b2, t))),
          .eps = o.eps,
          .decay = static_cast<float>(lr * static_cast<double>(o.weight_decay))};
}

}  // namespace chiron
