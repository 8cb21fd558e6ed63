#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"

namespace chiron {

/// Up to four dimensions, slowest first.
struct Shape {
  static constexpr int kMaxRank = 4;
  std::array<int64_t, kMaxRank> dims{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> list) {
    CHECK(list.size() <= kMaxRank);
    for (int64_t d : list) dims[static_cast<size_t>(rank++)] = d;
  }
  int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims[static_cast<size_t>(i)]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape&) const = default;
  /// "(8, 256, 384)"
  std::string str() const;
};

/// A contiguous, read-only, non-owning array. Trivially copyable. `at` is an address on the stream's device; on a dry
/// stream it is a made-up address that nobody may read. A default View means "absent".
struct View {
  uintptr_t at = 0;
  DType dtype = DType::f32;
  Shape shape;

  bool present() const { return at != 0; }
  int64_t numel() const { return shape.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype); }
  /// All dimensions but the last, and the last: the two sizes that row-wise ops work with.
  int64_t cols() const { return shape.rank ? shape[shape.rank - 1] : 1; }
  int64_t rows() const { return cols() ? numel() / cols() : 0; }

  template <class T>
  const T* data() const {
    CHECK(dtype == dtype_of<T>(), "data of {} asked as {}", name_of(dtype), name_of(dtype_of<T>()));
    return reinterpret_cast<const T*>(at);
  }
  /// Rows [begin, end) of the first dimension.
  View slice(int64_t begin, int64_t end) const;
  View reshape(Shape to) const;
};

/// The same, writable. Converts to a View.
struct Tensor {
  uintptr_t at = 0;
  DType dtype = DType::f32;
  Shape shape;

  operator View() const { return {at, dtype, shape}; }
  bool present() const { return at != 0; }
  int64_t numel() const { return shape.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype); }
  int64_t cols() const { return View(*this).cols(); }
  int64_t rows() const { return View(*this).rows(); }

  template <class T>
  T* data() const {
    CHECK(dtype == dtype_of<T>(), "data of {} asked as {}", name_of(dtype), name_of(dtype_of<T>()));
    return reinterpret_cast<T*>(at);
  }
  Tensor slice(int64_t begin, int64_t end) const;
  Tensor reshape(Shape to) const;
};

/// The only strided view: `rows` rows of `cols` elements, `ld` elements apart. q, k and v inside a qkv tensor, logits
/// without their padding. Whether it is written is said by the op that takes it.
struct Rows {
  uintptr_t at = 0;
  DType dtype = DType::f32;
  int64_t rows = 0, cols = 0, ld = 0;

  Rows() = default;
  Rows(const View& v) : at(v.at), dtype(v.dtype), rows(v.rows()), cols(v.cols()), ld(v.cols()) {}
  Rows(const Tensor& t) : Rows(View(t)) {}

  bool present() const { return at != 0; }
  bool contiguous() const { return ld == cols; }
  /// Columns [begin, begin + count), same rows.
  Rows columns(int64_t begin, int64_t count) const;
  /// Rows [begin, end).
  Rows slice(int64_t begin, int64_t end) const;

  template <class T>
  T* data() const {
    CHECK(dtype == dtype_of<T>(), "data of {} asked as {}", name_of(dtype), name_of(dtype_of<T>()));
    return reinterpret_cast<T*>(at);
  }
};

}  // namespace chiron
