#include "train/loss_scale.h"

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/spelling.h"
#include "ops/norm/step_rules.h"

namespace chiron {

LossScale LossScale::from_yaml(const YamlNode& node, const Option& option) {
  if (!node.is(YamlNode::Kind::scalar) || node.quoted) option.fail(node, node.shown() + " is no choice");
  if (node.text == "auto") return {};
  if (node.text == "dynamic") return {.kind = Kind::dynamic};
  std::string problem;
  const auto number = parse_double(node.text, problem);
  if (!number) {
    const std::vector<std::string> words{"auto", "dynamic"};
    option.fail(node, no_choice(node.shown(), node.text, words));
  }
  if (*number < 1 / double{kMaxLossScale} || *number > double{kMaxLossScale})
    option.fail(node, node.shown() + " is out of range");
  return {.kind = Kind::fixed, .value = *number};
}

std::string LossScale::yaml() const {
  return kind == Kind::automatic ? "auto" : kind == Kind::dynamic ? "dynamic" : shortest(value);
}

std::string LossScale::allowed() { return "auto, dynamic, or a number from 2^-24 to 2^24"; }

std::string LossScale::json_schema() {
  return fmt::format(R"({{"anyOf": [{{"enum": ["auto", "dynamic"]}},
    {{"type": "number", "minimum": {}, "maximum": {}}}]}})",
                     1 / double{kMaxLossScale}, double{kMaxLossScale});
}

}  // namespace chiron
