#pragma once

#include <string>

#include "core/tensor.h"

namespace chiron {

/// A part of a named global tensor: sizes and offsets per dimension.
struct Box {
  Shape offset, size;
};

/// One part of one tensor of the saved state: where its rows lie in memory and which part of which global tensor, as
/// laid out on disk, they are.
struct StatePart {
  std::string name;
  Rows data;                ///< in memory, (out, in)
  bool transposed = false;  ///< on disk the part is data's transpose
  Box part;                 ///< on disk
  Shape global;             ///< on disk
};

/// Visits everything that a checkpoint holds. Saving, loading, hashing and counting are visitors; whoever owns state
/// has one visit function.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void tensor(const StatePart& part) = 0;
};

}  // namespace chiron
