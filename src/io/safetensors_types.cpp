#include "io/safetensors_types.h"

#include <array>
#include <string>

#include "base/error.h"

namespace chiron {
namespace {

// In the order of the reference implementation's enum, which is the order of the writer.
constexpr std::array<SafetensorsType, 22> kTypes = {{
    {"BOOL", 8, {}, 0},
    {"F4", 4, {}, 1},
    {"F6_E2M3", 6, {}, 2},
    {"F6_E3M2", 6, {}, 3},
    {"U8", 8, DType::u8, 4},
    {"I8", 8, {}, 5},
    {"F8_E5M2", 8, DType::e5m2, 6},
    {"F8_E4M3", 8, DType::e4m3, 7},
    {"F8_E8M0", 8, {}, 8},
    {"F8_E4M3FNUZ", 8, {}, 9},
    {"F8_E5M2FNUZ", 8, {}, 10},
    {"I16", 16, {}, 11},
    {"U16", 16, DType::u16, 12},
    {"F16", 16, DType::f16, 13},
    {"BF16", 16, DType::bf16, 14},
    {"I32", 32, DType::i32, 15},
    {"U32", 32, {}, 16},
    {"F32", 32, DType::f32, 17},
    {"C64", 64, {}, 18},
    {"F64", 64, DType::f64, 19},
    {"I64", 64, DType::i64, 20},
    {"U64", 64, {}, 21},
}};

}  // namespace

const SafetensorsType* safetensors_type(std::string_view name) {
  for (const SafetensorsType& t : kTypes)
    if (t.name == name) return &t;
  return nullptr;
}

const SafetensorsType& safetensors_type(DType dtype) {
  for (const SafetensorsType& t : kTypes)
    if (t.dtype == dtype) return t;
  throw Bug("{} has no safetensors type", name_of(dtype));
}

std::string safetensors_type_names() {
  std::string names;
  for (const SafetensorsType& t : kTypes) names.append(names.empty() ? "" : " ").append(t.name);
  return names;
}

}  // namespace chiron
