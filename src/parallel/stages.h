#pragma once

#include <vector>

#include "core/param.h"

namespace chiron {

/// Units [first, last) of a model.
struct UnitRange {
  Unit first = 0, last = 0;
  bool contains(Unit u) const { return first <= u && u < last; }
  bool operator==(const UnitRange&) const = default;
};

/// Cuts the units of a model, embedding and head among them, into `parts` runs that differ by at most one unit; the
/// first and the last, which hold those two, are the short ones. ConfigError if there are more parts than units.
std::vector<UnitRange> cut_units(int units, int stages, int chunks);
/// Those of one stage: chunk c of stage s is the (c * stages + s)th part. One stage has one chunk.
std::vector<UnitRange> units_of_stage(int units, int stages, int chunks, int stage);

}  // namespace chiron
