#include "comm/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>
#include <vector>

#include "base/error.h"

namespace chiron {
namespace {

/// Innermost first.
constexpr std::array kAxes{Axis::tp, Axis::cp, Axis::ep, Axis::shard, Axis::replica, Axis::pp};

bool has(Axis axes, Axis one) { return (axes & one) == one; }

int size_of_axis(const MeshSizes& s, Axis axis) {
  switch (axis) {
    case Axis::tp:
      return s.tp;
    case Axis::cp:
      return s.cp;
    case Axis::ep:
      return s.ep;
    case Axis::shard:
      return s.shard;
    case Axis::replica:
      return s.dp / s.shard;
    case Axis::pp:
      return s.pp;
    default:
      break;
  }
  throw Bug("{} is no single axis", name_of(axis));
}

using Given = std::array<std::pair<const char*, int>, 5>;
Given given(const MeshSizes& s) { return {{{"tp", s.tp}, {"cp", s.cp}, {"ep", s.ep}, {"dp", s.dp}, {"pp", s.pp}}}; }

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) out.push_back(d);
  return out;
}

/// "start 6 or 9 ranks, or set tp to 1, 2, 4 or 8": changes of one number that make the product fit.
std::string what_would_do(const MeshSizes& s, int world, int64_t product) {
  std::string text;
  if (s.dp > 0) {
    text = fmt::format("start {} ranks", product);
  } else {
    const int64_t below = world / product * product;
    text = below > 0 ? fmt::format("start {} or {} ranks", below, below + product)
                     : fmt::format("start {} ranks", product);
  }
  for (const auto& [name, size] : given(s)) {
    if (size == 0) continue;
    const int64_t others = product / size;
    if (world % others != 0) continue;
    const std::vector<int64_t> fits = s.dp > 0 ? std::vector{world / others} : divisors(world / others);
    text += fmt::format("; or set {} to {}", name, fmt::join(fits, ", "));
  }
  return text;
}

}  // namespace

std::string name_of(Axis axes) {
  std::vector<std::string> names;
  if (has(axes, Axis::tp)) names.emplace_back("tp");
  if (has(axes, Axis::cp)) names.emplace_back("cp");
  if (has(axes, Axis::ep)) names.emplace_back("ep");
  if (has(axes, Axis::dp))
    names.emplace_back("dp");
  else if (has(axes, Axis::shard))
    names.emplace_back("shard");
  else if (has(axes, Axis::replica))
    names.emplace_back("replica");
  if (has(axes, Axis::pp)) names.emplace_back("pp");
  return fmt::format("{}", fmt::join(names, "+"));
}

std::string MeshSizes::str() const {
  std::vector<std::string> parts;
  for (const auto& [name, size] : given(*this))
    if (size > 1) parts.push_back(fmt::format("{} {}", name, size));
  if (shard > 0 && shard != dp) parts.push_back(fmt::format("sharded over {}", shard));
  return parts.empty() ? "one rank" : fmt::format("{}", fmt::join(parts, " x "));
}

MeshSizes fit_mesh(MeshSizes s, int world) {
  int64_t product = 1;
  for (const auto& [name, size] : given(s)) {
    if (size < 0 || (size == 0 && name != std::string_view("dp")))
      throw ConfigError("parallel: {} is {}, but an axis has at least one rank", name, size);
    if (size > 0) product *= size;
    if (product > (int64_t{1} << 31)) throw ConfigError("parallel: {} are more ranks than there can be", s.str());
  }
  if (s.dp == 0 ? world % product != 0 : world != product)
    throw ConfigError("parallel: {} makes {}{} ranks, but there {} {}: {}", s.str(), s.dp == 0 ? "a multiple of " : "",
                      product, world == 1 ? "is" : "are", world, what_would_do(s, world, product));
  if (s.dp == 0) s.dp = static_cast<int>(world / product);
  if (s.shard == 0) s.shard = s.dp;
  if (s.shard < 0 || s.dp % s.shard != 0)
    throw ConfigError("parallel: {} data parallel ranks cannot share out state among {} each; what divides them: {}",
                      s.dp, s.shard, fmt::join(divisors(s.dp), ", "));
  return s;
}

MeshShape::MeshShape(MeshSizes sizes) : sizes_(sizes) {
  CHECK(sizes.dp > 0 && sizes.shard > 0 && sizes.dp % sizes.shard == 0, "sizes of fit_mesh() are needed");
}

int MeshShape::size(Axis axes) const {
  int n = 1;
  for (const Axis a : kAxes)
    if (has(axes, a)) n *= size_of_axis(sizes_, a);
  return n;
}

int MeshShape::index(Axis axes, int rank) const {
  int index = 0, step = 1;
  for (const Axis a : kAxes) {
    const int n = size_of_axis(sizes_, a);
    if (has(axes, a)) {
      index += rank % n * step;
      step *= n;
    }
    rank /= n;
  }
  return index;
}

int MeshShape::at(Axis axes, int index, int rank) const {
  int out = 0, step = 1;
  for (const Axis a : kAxes) {
    const int n = size_of_axis(sizes_, a);
    const bool moves = has(axes, a);
    out += (moves ? index : rank) % n * step;
    if (moves) index /= n;
    rank /= n;
    step *= n;
  }
  return out;
}

Mesh::Mesh(MeshShape shape, int rank, Communicator* world, MakeGroup make) : shape_(shape), rank_(rank) {
  // Axes of one rank change no group, so only sets of the others have one.
  std::vector<Axis> wide;
  for (const Axis a : kAxes)
    if (shape_.size(a) > 1) wide.push_back(a);
  for (unsigned set = 0; set < (1u << wide.size()); ++set) {
    Axis axes = Axis::none;
    for (size_t i = 0; i < wide.size(); ++i)
      if (set >> i & 1) axes = axes | wide[i];
    // A part of dp whose other part is one rank is all of it.
    Axis shown = axes;
    if ((axes & Axis::dp) != Axis::none && shape_.size(axes & Axis::dp) == shape_.size(Axis::dp))
      shown = axes | Axis::dp;
    groups_[axes] = axes == Axis::none ? std::make_unique<SelfCommunicator>()
                                       : make(world, shape_.at(axes, 0, rank), size(axes), index(axes), name_of(shown));
  }
}

Mesh::Mesh(Communicator& world, MeshSizes sizes)
    : Mesh(MeshShape(fit_mesh(sizes, world.size())), world.rank(), &world,
           [](Communicator* all, int color, int, int index, std::string name) {
             return all->split(color, index, std::move(name));
           }) {}

Mesh Mesh::planned(MeshSizes sizes, int world, int rank) {
  return {MeshShape(fit_mesh(sizes, world)), rank, nullptr,
          [](Communicator*, int, int size, int index, std::string name) -> std::unique_ptr<Communicator> {
            return std::make_unique<PlannedCommunicator>(size, index, std::move(name));
          }};
}

Communicator& Mesh::group(Axis axes) {
  Axis wide = Axis::none;
  for (const Axis a : kAxes)
    if (has(axes, a) && shape_.size(a) > 1) wide = wide | a;
  return *groups_.at(wide);
}

std::string Mesh::str() const {
  std::vector<std::string> parts;
  for (const Axis a : {Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::pp})
    if (size(a) > 1) parts.push_back(fmt::format("{} {}", name_of(a), index(a)));
  return parts.empty() ? sizes().str() : fmt::format("{}: rank {} is {}", sizes().str(), rank_, fmt::join(parts, ", "));
}

}  // namespace chiron
