#include "cli/help.h"

#include <algorithm>

#include "base/schema_docs.h"

namespace chiron::cli {

namespace {

constexpr size_t kWidth = 100;

/// A name in the left column and its text in the right one.
std::string row(const std::string& name, const std::string& text, size_t column) {
  std::string lines = wrap(text, kWidth, std::string(column, ' '));
  std::string left = "  " + name;
  if (left.size() + 2 > column) return left + "\n" + lines;
  return left + lines.substr(left.size());
}

bool is_member(const Command& command, const std::string& group) {
  return group.empty() ? command.name.find(' ') == std::string::npos : command.name.starts_with(group + " ");
}

std::string list_commands(const std::vector<Command>& table, const std::string& group) {
  std::string text = "\nCommands:\n";
  for (const Command& command : table)
    if (is_member(command, group) && !command.hidden) text += row(command.name, command.summary, 18);
  return text;
}

}  // namespace

std::string argument_doc(const Argument& argument) {
  std::string text = argument.option->doc();
  std::string allowed = argument.option->allowed();
  bool obvious = argument.kind == Argument::Kind::flag || allowed.find("string") != std::string::npos;
  if (!obvious) text += " Allowed: " + allowed + ".";
  if (!argument.default_text.empty()) text += " Default: " + argument.default_text + ".";
  if (argument.repeated && !argument.rest) text += " May be repeated.";
  return text;
}

std::string program_help(const std::vector<Command>& table) {
  std::string text = std::string(kProgramSummary) + "\n\nUsage: chiron COMMAND ...\n" + list_commands(table, "");
  text += "\nOptions:\n";
  for (const auto& [spelling, doc] : kGlobalFlags) text += row(spelling, doc, 18);
  return text + "\n`chiron COMMAND --help` explains a command, `chiron config schema` all options of a run.\n";
}

std::string command_help(const std::vector<Command>& table, const Command& command) {
  std::string text = command.summary + "\n\n" + wrap("Usage: " + command.synopsis(), kWidth, "");
  if (!command.run) return text + list_commands(table, command.name);
  size_t column = 10;
  for (const Argument& a : command.arguments)
    column = std::max(column, std::min<size_t>(26, a.spelling.size() + a.value_name.size() + 5));
  for (bool positional : {true, false}) {
    std::string rows;
    for (const Argument& a : command.arguments) {
      if (a.hidden || (a.kind == Argument::Kind::positional) != positional) continue;
      std::string name = a.spelling;
      if (!a.value_name.empty()) name += " " + a.value_name;
      rows += row(name, argument_doc(a), column);
    }
    if (!rows.empty()) text += (positional ? "\nArguments:\n" : "\nOptions:\n") + rows;
  }
  return text;
}

}  // namespace chiron::cli
