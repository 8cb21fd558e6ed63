#include "core/dtype.h"

#include <cmath>

namespace chiron {

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::e4m3:
    case DType::e5m2:
    case DType::u8:
      return 1;
  }
  throw Bug("DType {} is unknown", static_cast<int>(dtype));
}

std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"f32", "bf16", "f16", "e4m3", "e5m2", "f64", "i64", "i32", "u16", "u8"};
  auto i = static_cast<size_t>(dtype);
  return i < std::size(names) ? names[i] : "unknown";
}

f16::f16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x), sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
  if (mag > 0x7f800000u) {
    bits = static_cast<uint16_t>(sign | 0x7e00u);  // NaN
  } else if (mag >= 0x477ff000u) {
    bits = static_cast<uint16_t>(sign | 0x7c00u);  // rounds beyond 65504
  } else if (mag < 0x38800000u) {
    // Subnormal: adding 0.5 aligns the mantissa so that the FPU rounds at the last bit of a binary16 subnormal.
    float aligned = std::bit_cast<float>(mag) + 0.5f;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  } else {
    uint32_t rounded = mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1u);
    bits = static_cast<uint16_t>(sign | (rounded >> 13));
  }
}

f16::operator float() const {
  uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

}  // namespace chiron
