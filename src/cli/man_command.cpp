#include <cstdio>
#include <sstream>

#include "base/schema_docs.h"
#include "cli/help.h"

namespace chiron::cli {

namespace {

/// Text that roff prints as it stands, in short lines.
std::string roff(const std::string& text) {
  std::string safe;
  std::istringstream lines(wrap(text, 64, ""));
  for (std::string line; std::getline(lines, line);) {
    if (!safe.empty()) safe += '\n';
    if (line.starts_with('.') || line.starts_with('\'')) safe += "\\&";
    for (char c : line) {
      if (c == '\\')
        safe += "\\e";
      else if (c == '-')
        safe += "\\-";
      else
        safe += c;
    }
  }
  return safe;
}

std::string paragraph(const std::string& tag, const std::string& text) {
  return ".TP\n.B " + roff(tag) + "\n" + roff(text) + "\n";
}

}  // namespace

std::string man_page(const std::vector<Command>& table) {
  std::string page = ".TH CHIRON 1 \"" CHIRON_DATE "\" \"Chiron " CHIRON_VERSION "\" \"User Commands\"\n";
  page += ".SH NAME\nchiron \\- trains large language models\n.SH SYNOPSIS\n";
  bool first = true;
  for (const Command& command : table) {
    if (!command.run || command.hidden) continue;
    if (!first) page += ".br\n";
    first = false;
    page += roff(command.synopsis()) + "\n";
  }
  page += ".SH DESCRIPTION\n" + roff(kProgramSummary) + "\n.SH COMMANDS\n";
  for (const Command& command : table) {
    if (!command.run || command.hidden) continue;
    page += ".SS " + roff("chiron " + command.name) + "\n" + roff(command.summary) + "\n";
    for (const Argument& argument : command.arguments) {
      if (argument.hidden) continue;
      std::string tag = argument.spelling;
      if (!argument.value_name.empty()) tag += " " + argument.value_name;
      page += paragraph(tag, argument_doc(argument));
    }
  }
  page += ".SH OPTIONS\n";
  for (const auto& [spelling, doc] : kGlobalFlags) page += paragraph(spelling, doc);
  page += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) page += paragraph(std::to_string(static_cast<int>(code)), meaning);
  return page;
}

ExitCode man(const ManArgs&) {
  std::string page = man_page(commands());
  std::fwrite(page.data(), 1, page.size(), stdout);
  return ExitCode::done;
}

}  // namespace chiron::cli
