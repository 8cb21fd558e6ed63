#include "train/policy.h"

#include <fmt/ranges.h>

#include <string_view>

namespace chiron {
namespace {

uint32_t all_of(std::span<const SlotSpec> specs) { return (1u << specs.size()) - 1; }

uint32_t named(const std::vector<std::string>& names, std::span<const SlotSpec> specs) {
  uint32_t mask = 0;
  for (const std::string& name : names) {
    uint32_t bit = 0;
    for (size_t i = 0; i < specs.size(); ++i)
      if (name == specs[i].name) bit = 1u << i;
    if (!bit) {
      std::vector<std::string_view> known;
      for (const SlotSpec& spec : specs) known.emplace_back(spec.name);
      throw ConfigError("activations: keep: the model has no slot \"{}\"; it has {}", name, fmt::join(known, ", "));
    }
    mask |= bit;
  }
  return mask;
}

}  // namespace

Policy make_policy(const Activations& activations, const Model& model) {
  Policy policy(static_cast<size_t>(model.units()), 0);
  for (Unit u = 1; u < model.head(); ++u) {
    uint32_t& mask = policy[static_cast<size_t>(u)];
    switch (activations.kind) {
      case Activations::Kind::keep_all:
        mask = all_of(model.slots(u));
        break;
      case Activations::Kind::keep_none:
        break;
      case Activations::Kind::every:
        mask = (u - 1) % activations.every == 0 ? 0 : all_of(model.slots(u));
        break;
      case Activations::Kind::keep:
        mask = named(activations.slots, model.slots(u));
        break;
    }
  }
  policy.back() = all_of(model.slots(model.head()));
  return policy;
}

}  // namespace chiron
