#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/option.h"

namespace chiron::cli {

/// One argument of a command: a positional word, an option with a value, or a switch.
struct Argument {
  enum class Kind : uint8_t { positional, value, flag };
  Kind kind;
  std::string spelling;    ///< "CONFIG" or "--out"
  std::string value_name;  ///< of an option with a value: "DIR"
  bool required, repeated;
  std::unique_ptr<Option> option;  ///< bound to the member of the command's struct; its key is the spelling
  std::string default_text;        ///< empty: nothing worth saying
  bool hidden = false;             ///< for tests: in no help
  bool rest = false;               ///< the last one: all words after "--", as they are

  /// "CONFIG", "[--set A.B=V]...", "--out DIR": as a synopsis shows it.
  std::string synopsis() const;
};

/// A row of the table of commands: parser, help, man page and tests read it. Its arguments are members of one struct,
/// which describes itself to the row.
class Command {
  // First, since the functions below must know its type.
  template <class T>
  auto& add(Argument::Kind kind, const std::string& spelling, const std::string& value_name, bool required, T& member,
            std::string doc) {
    auto made = make_option(spelling, member, std::move(doc));
    auto& reference = *made;
    constexpr bool kRepeated = std::is_same_v<T, std::vector<std::string>>;
    std::string text = made->yaml();
    if (kind == Argument::Kind::flag || required || kRepeated || text == "\"\"") text.clear();
    arguments.push_back({kind, spelling, value_name, required, kRepeated, std::move(made), std::move(text)});
    return reference;
  }

 public:
  std::string name;     ///< "train", "config show"
  std::string summary;  ///< a sentence
  bool hidden = false;  ///< not in lists
  std::vector<Argument> arguments;
  std::function<ExitCode()> run;  ///< absent: a group of commands

  // For the description of a struct.
  template <class T>
  auto& positional(const std::string& spelling, T& member, std::string doc, bool required = true) {
    return add(Argument::Kind::positional, spelling, "", required, member, std::move(doc));
  }
  void rest(const std::string& spelling, std::vector<std::string>& member, std::string doc) {
    add(Argument::Kind::positional, spelling, "", true, member, std::move(doc));
    arguments.back().rest = true;
  }
  template <class T>
  auto& value(const std::string& spelling, const std::string& value_name, T& member, std::string doc) {
    return add(Argument::Kind::value, spelling, value_name, false, member, std::move(doc));
  }
  template <class T>
  auto& required_value(const std::string& spelling, const std::string& value_name, T& member, std::string doc) {
    return add(Argument::Kind::value, spelling, value_name, true, member, std::move(doc));
  }
  /// For tests: it works, and no help names it.
  template <class T>
  auto& hidden_value(const std::string& spelling, const std::string& value_name, T& member, std::string doc) {
    auto& option = value(spelling, value_name, member, std::move(doc));
    arguments.back().hidden = true;
    return option;
  }
  void flag(const std::string& spelling, bool& member, std::string doc) {
    add(Argument::Kind::flag, spelling, "", false, member, std::move(doc));
  }

  bool takes_rest() const { return !arguments.empty() && arguments.back().rest; }
  /// "chiron train CONFIG [--set A.B=V]...".
  std::string synopsis() const;
};

/// A row for a command whose arguments are the members of Args, which has a describe(Command&).
template <class Args, class Handler>
Command make_command(std::string name, std::string summary, Handler handler) {
  Command command;
  command.name = std::move(name);
  command.summary = std::move(summary);
  auto args = std::make_shared<Args>();
  args->describe(command);
  command.run = [args, handler] { return handler(*args); };
  return command;
}

/// All commands, groups before their members.
std::vector<Command> commands();

}  // namespace chiron::cli
