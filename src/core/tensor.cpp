#include "core/tensor.h"

#include <fmt/ranges.h>

namespace chiron {

std::string Shape::str() const { return fmt::format("({})", fmt::join(dims.begin(), dims.begin() + rank, ", ")); }

View View::slice(int64_t begin, int64_t end) const {
  CHECK(shape.rank > 0 && 0 <= begin && begin <= end && end <= shape[0], "rows {} to {} of {}", begin, end,
        shape.str());
  View out = *this;
  out.shape[0] = end - begin;
  if (shape[0]) out.at += static_cast<uintptr_t>(begin * (bytes() / shape[0]));
  return out;
}

View View::reshape(Shape to) const {
  CHECK(to.numel() == numel(), "{} does not hold as many elements as {}", to.str(), shape.str());
  return {at, dtype, to};
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  View v = View(*this).slice(begin, end);
  return {v.at, v.dtype, v.shape};
}

Tensor Tensor::reshape(Shape to) const {
  View v = View(*this).reshape(to);
  return {v.at, v.dtype, v.shape};
}

Rows Rows::columns(int64_t begin, int64_t count) const {
  CHECK(0 <= begin && 0 <= count && begin + count <= cols, "columns {} to {} of {}", begin, begin + count, cols);
  Rows out = *this;
  out.at += static_cast<uintptr_t>(begin * size_of(dtype));
  out.cols = count;
  return out;
}

Rows Rows::slice(int64_t begin, int64_t end) const {
  CHECK(0 <= begin && begin <= end && end <= rows, "rows {} to {} of {}", begin, end, rows);
  Rows out = *this;
  out.at += static_cast<uintptr_t>(begin * ld * size_of(dtype));
  out.rows = end - begin;
  return out;
}

}  // namespace chiron
