#include "parallel/stages.h"

#include "base/error.h"

namespace chiron {

std::vector<UnitRange> cut_units(int units, int stages, int chunks) {
  const int parts = stages * chunks;
  if (parts > units)
    throw ConfigError(
        "parallel.pp {}{} cuts the model into {} parts, but it has {} units (embedding, {} layers, head): at most {} "
        "stages would do",
        stages, chunks > 1 ? fmt::format(" with {} chunks", chunks) : "", parts, units, units - 2, units / chunks);
  // The longer parts lie in the middle: embedding and head are the costliest units.
  const int small = units / parts, longer = units % parts, before = (parts - longer) / 2;
  std::vector<UnitRange> ranges;
  for (int p = 0, first = 0; p < parts; ++p) {
    const int size = small + (p >= before && p < before + longer ? 1 : 0);
    ranges.push_back({first, first + size});
    first += size;
  }
  return ranges;
}

std::vector<UnitRange> units_of_stage(int units, int stages, int chunks, int stage) {
  if (stages == 1) chunks = 1;
  const std::vector<UnitRange> parts = cut_units(units, stages, chunks);
  std::vector<UnitRange> own;
  for (int c = 0; c < chunks; ++c) own.push_back(parts[static_cast<size_t>(c * stages + stage)]);
  return own;
}

}  // namespace chiron
