#pragma once

#include <bit>
#include <cstdint>

/// The 16-bit floating-point kinds. All functions are constexpr, which is also what lets GPU compilers call them.
namespace chiron {

/// bfloat16: the upper half of a float. Conversion from float rounds to nearest even and keeps NaN a NaN.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  constexpr explicit bf16(float x) : bits(round(std::bit_cast<uint32_t>(x))) {}
  constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

 private:
  static constexpr uint16_t round(uint32_t u) {
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return static_cast<uint16_t>((nan ? (u | 0x400000u) : rounded) >> 16);
  }
};

/// IEEE binary16. Conversion from float rounds to nearest even; overflow gives infinity.
struct f16 {
  uint16_t bits = 0;

  f16() = default;
  constexpr explicit f16(float x) : bits(round(std::bit_cast<uint32_t>(x))) {}
  constexpr operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }

 private:
  static constexpr uint16_t round(uint32_t u) {
    const uint32_t sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
    if (mag >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds beyond 65504
    if (mag < 0x38800000u) {
      // Subnormal: adding 0.5 aligns the mantissa so that the FPU rounds at the last bit of a binary16 subnormal.
      const float aligned = std::bit_cast<float>(mag) + 0.5f;
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
    }
    const uint32_t rounded = mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1u);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
};

}  // namespace chiron
