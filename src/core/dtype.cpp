#include "core/dtype.h"

#include <iterator>

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

}  // namespace chiron
