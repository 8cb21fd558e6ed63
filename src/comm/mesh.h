#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace chiron {

/// Axes of the mesh, innermost first: ranks that differ only in tp are neighbours, on one node where it has room. A set
/// of axes is a sum of bits.
enum class Axis : uint8_t {
  none = 0,
  tp = 1,        ///< tensor parallel: parts of each matrix (and sequence parallel)
  cp = 2,        ///< context parallel: parts of each sequence
  ep = 4,        ///< expert parallel: a place for experts; for all other weights these are data ranks
  shard = 8,     ///< data parallel ranks that may share out state among them (ZeRO)
  replica = 16,  ///< data parallel ranks that hold the same: more than one if sharding stays within a node
  pp = 32,       ///< pipeline stages
  dp = shard + replica,
  data = cp + ep + dp,  ///< the ranks over which gradients are summed
  all = tp + data + pp,
};
constexpr Axis operator|(Axis a, Axis b) { return static_cast<Axis>(static_cast<int>(a) | static_cast<int>(b)); }
constexpr Axis operator&(Axis a, Axis b) { return static_cast<Axis>(static_cast<int>(a) & static_cast<int>(b)); }
/// "tp", "dp", "cp+dp", ...
std::string name_of(Axis axes);

/// How many ranks each axis has; dp is shard * replica.
struct MeshSizes {
  int tp = 1, cp = 1, ep = 1;
  int dp = 0;     ///< 0: all ranks that the others leave
  int shard = 0;  ///< of the dp ranks, how many share out state; 0: all
  int pp = 1;

  /// "tp 2 x dp 4": those above one, or "one rank".
  std::string str() const;
};

/// The sizes with what 0 stands for filled in. ConfigError, which says what would do, if they do not make `world`
/// ranks. Nothing is communicated.
MeshSizes fit_mesh(MeshSizes sizes, int world);

/// Rank <-> coordinates: a pure function of the sizes, which fit_mesh() gave.
class MeshShape {
 public:
  explicit MeshShape(MeshSizes sizes);
  const MeshSizes& sizes() const { return sizes_; }
  int size(Axis axes) const;
  /// Where a rank stands among the ranks that differ from it in these axes only; inner axes run fastest.
  int index(Axis axes, int rank) const;
  /// The rank that stands at `index` along these axes and where `rank` stands along all others.
  int at(Axis axes, int index, int rank) const;

 private:
  MeshSizes sizes_;
};

/// A rank's place in the mesh, and a group for each set of axes.
class Mesh {
 public:
  /// Collective over the world, which outlives the mesh; sizes as for fit_mesh().
  Mesh(Communicator& world, MeshSizes sizes);
  /// One rank, alone: no group communicates.
  static Mesh single() { return planned({}, 1, 0); }
  /// For dry streams: what `rank` of such a mesh would see.
  static Mesh planned(MeshSizes sizes, int world, int rank);

  const MeshSizes& sizes() const { return shape_.sizes(); }
  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  int size(Axis axes) const { return shape_.size(axes); }
  int index(Axis axes) const { return shape_.index(axes, rank_); }
  /// The ranks that differ from this one in these axes only; its rank() is index(axes). A group of one if they are one.
  Communicator& group(Axis axes);
  /// "tp 2 x dp 2: rank 3 is tp 1, dp 1"
  std::string str() const;

 private:
  using MakeGroup = std::unique_ptr<Communicator> (*)(Communicator* world, int color, int size, int index,
                                                      std::string name);
  Mesh(MeshShape shape, int rank, Communicator* world, MakeGroup make);

  MeshShape shape_;
  int rank_;
  std::map<Axis, std::unique_ptr<Communicator>> groups_;  ///< by the axes among them that have more than one rank
};

}  // namespace chiron
