#include "cli/command.h"

namespace chiron::cli {

std::string Argument::synopsis() const {
  std::string text = kind == Kind::value ? fmt::format("{} {}", spelling, value_name) : spelling;
  if (rest) return fmt::format("-- {}...", spelling);
  return fmt::format("{}{}{}{}", required ? "" : "[", text, required ? "" : "]", repeated ? "..." : "");
}

std::string Command::synopsis() const {
  std::string text = "chiron " + name;
  for (const Argument& argument : arguments)
    if (!argument.hidden) text += " " + argument.synopsis();
  return run ? text : text + " COMMAND";
}

}  // namespace chiron::cli
