#pragma once

#include <array>
#include <cstdint>

#include <functional>

#include "core/staging.h"
#include "core/state.h"

namespace chiron {

/// The elements of a box of a global tensor, somewhere in memory: element (i0, i1, ...) of the global tensor lies
/// sum((i[k] - box.offset[k]) * step[k]) elements after `at`. No alignment is asked for.
struct BoxView {
  uintptr_t at = 0;
  DType dtype = DType::f32;
  Box box;
  std::array<int64_t, Shape::kMaxRank> step{};
};

/// A part of the saved state, as it lies in memory, in the coordinates of the file.
BoxView box_view(const StatePart& part);
/// A box whose elements follow each other, last dimension fastest.
BoxView box_view(uintptr_t at, DType dtype, const Box& box);

/// The whole of a tensor of this shape.
Box whole(const Shape& shape);
/// The box of elements that both boxes hold, empty if there are none; their ranks are equal.
Box common(const Box& a, const Box& b);
/// Whether the elements follow each other as box_view(at, dtype, box) has them.
bool lies_in_file_order(const BoxView& view);

/// Whether copy_box can turn the one type into the other: any float kind of 16 to 64 bits into any, else equal types.
bool convertible(DType from, DType to);

/// Calls read(part) for `part`, or for blocks of its rows that stand in host memory, and puts what it fills in into
/// part.data.
void read_part(const Staging& staging, const StatePart& part, const std::function<void(const StatePart&)>& read);

/// Copies the elements that both boxes hold, converting as by a cast through float (through double where both are
/// f64). Returns their number. The types are convertible.
int64_t copy_box(const BoxView& to, const BoxView& from);

}  // namespace chiron
