#include "io/box_copy.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace chiron {
namespace {

constexpr int kRank = Shape::kMaxRank;

template <class T>
T load(const std::byte* at) {
  T x;
  std::memcpy(&x, at, sizeof x);
  return x;
}

/// A stretch of one dimension on both sides; steps in elements.
struct Run {
  int64_t size = 1, to = 0, from = 0;
};

/// An uninterpreted element: equal types are copied bit by bit.
template <size_t kBytes>
struct Raw {
  std::array<std::byte, kBytes> bytes;
};

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<To, double>)
    return static_cast<double>(static_cast<Acc<From>>(x));
  else
    return To(static_cast<float>(x));
}

template <class To, class From>
void copy_line(std::byte* to, const std::byte* from, const Run& run) {
  constexpr auto kTo = static_cast<int64_t>(sizeof(To)), kFrom = static_cast<int64_t>(sizeof(From));
  if constexpr (std::is_same_v<To, From>) {
    if (run.to == 1 && run.from == 1) {
      std::memcpy(to, from, static_cast<size_t>(run.size) * sizeof(To));
      return;
    }
  }
  for (int64_t i = 0; i < run.size; ++i) {
    To y = convert<To>(load<From>(from + i * run.from * kFrom));
    std::memcpy(to + i * run.to * kTo, &y, sizeof y);
  }
}

/// Two dimensions, in tiles: one side may run along rows and the other along columns.
template <class To, class From>
void copy_plane(std::byte* to, const std::byte* from, const Run& rows, const Run& cols) {
  constexpr auto kTo = static_cast<int64_t>(sizeof(To)), kFrom = static_cast<int64_t>(sizeof(From));
  bool along = cols.to == 1 && cols.from == 1;
  const int64_t tile_rows = along ? rows.size : 32, tile_cols = along ? cols.size : 32;
  for (int64_t r0 = 0; r0 < rows.size; r0 += tile_rows)
    for (int64_t c0 = 0; c0 < cols.size; c0 += tile_cols) {
      Run part = cols;
      part.size = std::min(tile_cols, cols.size - c0);
      for (int64_t r = r0; r < std::min(r0 + tile_rows, rows.size); ++r)
        copy_line<To, From>(to + (r * rows.to + c0 * cols.to) * kTo, from + (r * rows.from + c0 * cols.from) * kFrom,
                            part);
    }
}

template <class To, class From>
void copy_runs(std::byte* to, const std::byte* from, const std::array<Run, kRank>& runs) {
  for (int64_t i = 0; i < runs[0].size; ++i)
    for (int64_t j = 0; j < runs[1].size; ++j)
      copy_plane<To, From>(to + (i * runs[0].to + j * runs[1].to) * static_cast<int64_t>(sizeof(To)),
                           from + (i * runs[0].from + j * runs[1].from) * static_cast<int64_t>(sizeof(From)), runs[2],
                           runs[3]);
}

bool float_kind(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16 || t == DType::f64; }

void copy_typed(DType to_type, std::byte* to, DType from_type, const std::byte* from,
                const std::array<Run, kRank>& runs) {
  if (to_type == from_type) {
    switch (size_of(to_type)) {
      case 1:
        return copy_runs<Raw<1>, Raw<1>>(to, from, runs);
      case 2:
        return copy_runs<Raw<2>, Raw<2>>(to, from, runs);
      case 4:
        return copy_runs<Raw<4>, Raw<4>>(to, from, runs);
      default:
        return copy_runs<Raw<8>, Raw<8>>(to, from, runs);
    }
  }
  by_float(to_type, [&]<class To>() {
    by_float(from_type, [&]<class From>() {
      if constexpr (!std::is_same_v<To, From>) copy_runs<To, From>(to, from, runs);
    });
  });
}

}  // namespace

BoxView box_view(const StatePart& part) {
  const Shape& size = part.part.size;
  const Rows& data = part.data;
  CHECK(size.rank == part.global.rank && part.part.offset.rank == size.rank, "part of {}: ranks differ", part.name);
  CHECK(size.numel() == data.rows * data.cols, "part of {}: {} rows of {} hold no box of {}", part.name, data.rows,
        data.cols, size.str());
  for (int i = 0; i < size.rank; ++i)
    CHECK(part.part.offset[i] >= 0 && part.part.offset[i] + size[i] <= part.global[i], "part of {} leaves {}",
          part.name, part.global.str());
  BoxView view{data.at, data.dtype, part.part, {}};
  if (size.rank == 0 || size.numel() == 0) return view;
  const int last = size.rank - 1;
  if (part.transposed && size.rank == 2) {
    CHECK(data.rows == size[1] && data.cols == size[0], "part of {}: not the transpose of {}", part.name, size.str());
    view.step = {1, data.ld};
  } else if (size.rank == 1) {
    // A vector is one row or one column.
    CHECK(data.rows == 1 || data.cols == 1, "part of {}: a vector in {} rows of {}", part.name, data.rows, data.cols);
    view.step[0] = data.rows == 1 ? 1 : data.ld;
  } else {
    CHECK(!part.transposed && data.cols == size[last], "part of {}: rows of {} for {}", part.name, data.cols,
          size.str());
    view.step[static_cast<size_t>(last)] = 1;
    int64_t rows = 1;
    for (int i = last - 1; i >= 0; --i) {
      view.step[static_cast<size_t>(i)] = rows * data.ld;
      rows *= size[i];
    }
  }
  return view;
}

BoxView box_view(uintptr_t at, DType dtype, const Box& box) {
  BoxView view{at, dtype, box, {}};
  int64_t step = 1;
  for (int i = box.size.rank - 1; i >= 0; --i) {
    view.step[static_cast<size_t>(i)] = step;
    step *= box.size[i];
  }
  return view;
}

Box whole(const Shape& shape) {
  Box box{shape, shape};
  box.offset.dims.fill(0);
  return box;
}

Box common(const Box& a, const Box& b) {
  CHECK(a.size.rank == b.size.rank);
  Box both = a;
  for (int i = 0; i < a.size.rank; ++i) {
    both.offset[i] = std::max(a.offset[i], b.offset[i]);
    const int64_t end = std::min(a.offset[i] + a.size[i], b.offset[i] + b.size[i]);
    both.size[i] = std::max<int64_t>(0, end - both.offset[i]);
  }
  return both;
}

bool lies_in_file_order(const BoxView& view) {
  return view.step == box_view(view.at, view.dtype, view.box).step || view.box.size.numel() <= 1;
}

void read_part(const Staging& staging, const StatePart& part, const std::function<void(const StatePart&)>& read) {
  const Rows& data = part.data;
  if (!data.contiguous()) return read(part);
  // Rows of a matrix are a box of the file too; anything else stays in one piece.
  const bool matrix = part.part.size.rank == 2;
  const Shape shape = matrix ? Shape{data.rows, data.cols} : Shape{1, data.rows * data.cols};
  staging.write({data.at, data.dtype, shape}, [&](Tensor host, int64_t first) {
    StatePart block = part;
    block.data.at = host.at;
    if (matrix) {
      const int dim = part.transposed ? 1 : 0;
      block.data.rows = host.shape[0];
      block.part.offset[dim] += first;
      block.part.size[dim] = host.shape[0];
    }
    read(block);
  });
}

bool convertible(DType from, DType to) { return from == to || (float_kind(from) && float_kind(to)); }

int64_t copy_box(const BoxView& to, const BoxView& from) {
  CHECK(convertible(from.dtype, to.dtype), "{} to {}", name_of(from.dtype), name_of(to.dtype));
  const Box both = common(to.box, from.box);
  const int64_t n = both.size.numel();
  if (n == 0) return 0;
  // Dimensions are aligned at the last one; those in front that do not exist have size 1.
  std::array<Run, kRank> runs;
  int64_t to_start = 0, from_start = 0;
  const int rank = to.box.size.rank;
  for (int i = 0; i < rank; ++i) {
    auto k = static_cast<size_t>(i);
    runs[static_cast<size_t>(i + kRank - rank)] = {both.size[i], to.step[k], from.step[k]};
    to_start += (both.offset[i] - to.box.offset[i]) * to.step[k];
    from_start += (both.offset[i] - from.box.offset[i]) * from.step[k];
  }
  copy_typed(to.dtype, reinterpret_cast<std::byte*>(to.at) + to_start * size_of(to.dtype), from.dtype,
             reinterpret_cast<const std::byte*>(from.at) + from_start * size_of(from.dtype), runs);
  return n;
}

}  // namespace chiron
