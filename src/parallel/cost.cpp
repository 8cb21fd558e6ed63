#include "parallel/cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/numbers.h"

namespace chiron {
namespace {

/// Of a group's name: "dp", "cp+dp", "pp back".
Axis axes_of(std::string_view name) {
  Axis axes = Axis::none;
  name = name.substr(0, name.find(' '));
  while (!name.empty()) {
    const std::string_view one = name.substr(0, name.find('+'));
    for (const Axis a : {Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::shard, Axis::replica, Axis::pp})
      if (one == name_of(a)) axes = axes | a;
    name.remove_prefix(std::min(name.size(), one.size() + 1));
  }
  return axes;
}

}  // namespace

RingCost ring_cost(CommOp op, int n) {
  const double rounds = n - 1, share = rounds / n;
  switch (op) {
    case CommOp::all_reduce:
    case CommOp::broadcast:
      return {2 * share, 2 * rounds};
    case CommOp::reduce_scatter:
    case CommOp::all_gather:
    case CommOp::reduce:
    case CommOp::all_to_all:
      return {share, rounds};
    case CommOp::send:
      return {1, 1};
    case CommOp::barrier:
    case CommOp::split:
    case CommOp::receive:
      return {};
  }
  return {};
}

double seconds(RingCost cost, const Work& work, const Link& link) {
  if (cost.rounds == 0) return 0;
  return cost.share * work.larger / link.bandwidth + cost.rounds * work.calls * link.latency;
}

std::optional<GroupCall> group_call(std::string_view op, const MeshShape& shape, int rank, int ranks_per_node) {
  const size_t blank = op.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const auto names = names_of(CommOp{});
  const auto at = std::ranges::find(names, op.substr(0, blank));
  if (at == names.end()) return std::nullopt;
  const std::string_view group = op.substr(blank + 1);
  GroupCall call{static_cast<CommOp>(at - names.begin()), axes_of(group), 0, false};
  const int all = shape.size(call.axes);
  const bool ends = group.ends_with(" tied");  // the first stage and the last
  const bool pair = call.op == CommOp::send || call.op == CommOp::receive;
  call.size = ends || pair ? 2 : all;
  if (ranks_per_node == 0) return call;
  auto node = [&](int index) { return shape.at(call.axes, (index + all) % all, rank) / ranks_per_node; };
  const int here = rank / ranks_per_node;
  if (pair) {
    // Outputs go up the stages, gradients down.
    const bool up = (call.op == CommOp::send) != group.ends_with(" back");
    call.across = node(shape.index(call.axes, rank) + (up ? 1 : -1)) != here;
  } else if (ends) {
    call.across = node(0) != node(all - 1);
  } else {
    for (int i = 0; i < all; ++i) call.across = call.across || node(i) != here;
  }
  return call;
}

Traffic traffic(const WorkByOp& step, const MeshShape& shape, int rank, int ranks_per_node) {
  Traffic sums;
  for (const auto& [op, work] : step) {
    const auto call = group_call(op, shape, rank, ranks_per_node);
    const RingCost cost = call ? ring_cost(call->op, call->size) : RingCost{};
    if (cost.rounds == 0) continue;
    Sent& sent = sums[fmt::format("{} {}", names_of(CommOp{})[static_cast<size_t>(call->op)], name_of(call->axes))];
    (call->across ? sent.across : sent.inside) += cost.share * work.larger;
    sent.calls += work.calls;
  }
  return sums;
}

double weighed(const Traffic& traffic, double across) {
  double sum = 0;
  for (const auto& [kind, sent] : traffic) sum += sent.inside + across * sent.across;
  return sum;
}

std::string traffic_table(const Traffic& traffic) {
  if (traffic.empty()) return "";
  std::string out = "\nsent by each rank in a step\n";
  double sum = 0, across = 0;
  auto bytes = [](double x) { return bytes_text(static_cast<int64_t>(x)); };
  for (const auto& [kind, sent] : traffic) {
    out += fmt::format("  {:<26}{:>16}  in {}\n", kind, bytes(sent.total()),
                       counted(static_cast<int64_t>(sent.calls), "call"));
    sum += sent.total(), across += sent.across;
  }
  out += fmt::format("  {:<26}{:>16}", "total", bytes(sum));
  return out + (across > 0 ? fmt::format("  {} of it between nodes\n", bytes(across)) : "\n");
}

}  // namespace chiron
