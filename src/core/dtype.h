#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/half.h"

namespace chiron {

/// Element types. f64, i64 exist on the CPU only (finite differences, host data).
enum class DType : uint8_t { f32, bf16, f16, e4m3, e5m2, f64, i64, i32, u16, u8 };

/// Bytes per element.
int64_t size_of(DType dtype);
/// "f32", "bf16", ...: the spelling used in messages, options and tables.
std::string_view name_of(DType dtype);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, f16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return DType::u16;
  else {
    static_assert(std::is_same_v<T, uint8_t>, "no DType for this C++ type");
    return DType::u8;
  }
}

/// The type in which arithmetic on T is done: double for double, float for every narrower kind.
template <class T>
using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The dtype of statistics and of gradients of weights that belong to activations of `dtype`: f64 for f64, else f32.
inline DType acc_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Calls f.template operator()<T>() with the C++ type of a float kind that GPUs compute with.
template <class F>
decltype(auto) by_gpu_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::bf16:
      return f.template operator()<bf16>();
    case DType::f16:
      return f.template operator()<f16>();
    default:
      break;
  }
  throw Bug("{} is no float kind that arithmetic is defined for here", name_of(dtype));
}

/// The same for the float kinds that the CPU computes with: f64 too.
template <class F>
decltype(auto) by_float(DType dtype, F&& f) {
  if (dtype == DType::f64) return f.template operator()<double>();
  return by_gpu_float(dtype, f);
}

}  // namespace chiron
