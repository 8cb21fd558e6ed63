#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/mesh.h"
#include "parallel/step_work.h"

namespace chiron {

/// Of one rank's way to others.
struct Link {
  double bandwidth = 0;  ///< bytes per second that come in, while as many go out
  double latency = 0;    ///< seconds of a message
};

/// What a call over a ring of n ranks costs each of them, whose larger side has S bytes.
struct RingCost {
  double share = 0;   ///< of S, comes in and goes out
  double rounds = 0;  ///< messages, one after another
};
/// all_reduce 2 (n - 1) / n and 2 (n - 1) rounds; its halves reduce_scatter and all_gather one (n - 1) / n each. What a
/// rank receives is counted where it is sent.
RingCost ring_cost(CommOp op, int n);
/// Seconds of `work` calls.
double seconds(RingCost cost, const Work& work, const Link& link);

/// The communication that an op of a trace is.
struct GroupCall {
  CommOp op;
  Axis axes;
  int size;
  bool across;  ///< the ring leaves the node
};
/// Of "all_reduce dp", say, on a rank of a mesh with so many neighbouring ranks on each node (0: all). nullopt: no
/// communication. Of "tp holders", a part of tp, it is not known how large: all of tp is taken.
std::optional<GroupCall> group_call(std::string_view op, const MeshShape& shape, int rank, int ranks_per_node);

/// Bytes that a rank sends in a step, by kind and axes: "all_reduce dp".
struct Sent {
  double inside = 0, across = 0;  ///< the node, and between nodes
  double calls = 0;
  double total() const { return inside + across; }
};
using Traffic = std::map<std::string, Sent>;
Traffic traffic(const WorkByOp& step, const MeshShape& shape, int rank, int ranks_per_node);

/// A network is about so many times as slow as the way between ranks of one node.
inline constexpr double kAcrossNodes = 10;
/// Bytes, those between nodes weighing `across` times as much.
double weighed(const Traffic& traffic, double across = kAcrossNodes);
/// A line each, and their sum. Empty if nothing is sent.
std::string traffic_table(const Traffic& traffic);

}  // namespace chiron
