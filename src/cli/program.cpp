#include "cli/program.h"

#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/spelling.h"
#include "cli/help.h"
#include "comm/tcp_store.h"

namespace chiron::cli {

namespace {

/// A command in CLI11's terms. CLI11 cuts the line into words; what they mean is checked by the table's options.
struct Node {
  Command* command;
  CLI::App* app;
  bool help = false;
  std::vector<std::vector<std::string>> words{};  ///< for each argument
};

std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

void declare(CLI::App& app, Node& node) {
  app.set_help_flag();
  app.allow_extras();
  app.require_subcommand(0, 1);
  if (!node.command) return;
  app.add_flag("--help,-h", node.help)->disable_flag_override();
  node.words.resize(node.command->arguments.size());
  for (size_t i = 0; i < node.command->arguments.size(); ++i) {
    const Argument& argument = node.command->arguments[i];
    auto& words = node.words[i];
    switch (argument.kind) {
      case Argument::Kind::flag:
        app.add_flag_callback(argument.spelling, [&words] { words.emplace_back("true"); })->disable_flag_override();
        break;
      case Argument::Kind::value:
        app.add_option(argument.spelling, words)->allow_extra_args(false);
        break;
      case Argument::Kind::positional:
        if (!argument.rest) app.add_option(argument.spelling, words)->expected(-1);
        break;
    }
  }
}

/// Refuses the words that CLI11 could not place.
void refuse_extras(const std::vector<Command>& table, const Command* command, const std::vector<std::string>& extras) {
  if (extras.empty()) return;
  const std::string& word = extras[0];
  std::string where = command ? "chiron " + command->name : "chiron";
  std::vector<std::string> known;
  if (word.starts_with("-")) {
    if (command) {
      for (const Argument& a : command->arguments) {
        if (a.kind != Argument::Kind::positional && !a.hidden) known.push_back(a.spelling);
      }
    }
    for (const auto& flag : kGlobalFlags) known.emplace_back(flag.first);
    std::string name = word.substr(0, word.find('='));
    std::string hint = did_you_mean(name, known);
    throw ConfigError("{}: there is no option {}{}", where, name,
                      !hint.empty() ? hint
                      : command     ? "; usage: " + command->synopsis()
                                    : "; `chiron --help` lists them");
  }
  if (command && command->run) {
    throw ConfigError("{}: one word too many: {}; usage: {}", where, word, command->synopsis());
  }
  std::string prefix = command ? command->name + " " : "";
  for (const Command& c : table) {
    bool here = c.name.starts_with(prefix) && c.name.find(' ', prefix.size()) == std::string::npos && !c.hidden;
    if (here) known.push_back(c.name.substr(prefix.size()));
  }
  throw ConfigError("{}: there is no command {}{} The commands are {}", where, word,
                    nearest(word, known).empty() ? ";" : did_you_mean(word, known), fmt::join(known, ", "));
}

void take_words(const Node& node) {
  const Command& command = *node.command;
  std::string where = "chiron " + command.name;
  for (size_t i = 0; i < command.arguments.size(); ++i) {
    const Argument& argument = command.arguments[i];
    const auto& words = node.words[i];
    if (words.empty()) {
      if (argument.required) {
        throw ConfigError("{}: {} is missing; usage: {}", where, argument.spelling, command.synopsis());
      }
      continue;
    }
    if (argument.repeated) {
      YamlNode list{.kind = YamlNode::Kind::list, .place = where};
      for (const std::string& word : words) {
        list.values.push_back({.kind = YamlNode::Kind::scalar, .text = word, .place = where});
      }
      argument.option->set(list);
    } else if (words.size() > 1 && argument.kind == Argument::Kind::positional) {
      throw ConfigError("{}: one word too many: {}; usage: {}", where, words[1], command.synopsis());
    } else if (words.size() > 1 && argument.kind == Argument::Kind::value) {
      throw ConfigError("{}: {} is given {} times, and takes one value", where, argument.spelling, words.size());
    } else {
      try {
        argument.option->set_text(words[0], where);
      } catch (const ConfigError& e) {
        if (argument.kind != Argument::Kind::positional) throw;
        throw ConfigError("{}; usage: {}", e.what(), command.synopsis());
      }
    }
  }
}

/// torchrun's summary shows what the first worker to fail wrote down. Throws nothing: it is worth no error of its own.
void tell_torchrun(const char* message) {
  const char* file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!file || !*file) return;
  try {
    const nlohmann::json extra{{"timestamp", std::to_string(std::time(nullptr))}};
    const nlohmann::json whole{{"message", {{"message", message}, {"extraInfo", extra}}}};
    std::ofstream(file) << whole.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } catch (const std::exception&) {
  }
}

/// Throws nothing: the standard error output may be full, and so may memory.
int fail(ExitCode code, const char* message) {
  tell_torchrun(message);
  std::fprintf(stderr, "chiron: error: %s\n", message);
  if (code == ExitCode::bug) {
    std::fputs(
        "This is a mistake of Chiron's own. Please report it with the line above, the command line, the configuration "
        "and the output of `chiron doctor`.\n",
        stderr);
  }
  return static_cast<int>(code);
}

}  // namespace

Request parse(std::vector<Command>& table, std::vector<std::string> words) {
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  CLI::App root;
  bool help = false, version = false;
  Node top{nullptr, &root};
  declare(root, top);
  root.add_flag("--help,-h", help)->disable_flag_override();
  root.add_flag("--version", version)->disable_flag_override();
  std::map<std::string, Node> nodes;
  for (Command& command : table) {
    size_t space = command.name.rfind(' ');
    CLI::App* parent = space == std::string::npos ? &root : nodes.at(command.name.substr(0, space)).app;
    Node& node = nodes[command.name];
    node = {&command, parent->add_subcommand(last_word(command.name))};
    declare(*node.app, node);
    if (!command.takes_rest() || words.empty() || words[0] != command.name) continue;
    const auto dashes = std::ranges::find(words, "--");
    if (dashes == words.end()) continue;
    node.words.back().assign(dashes + 1, words.end());
    words.erase(dashes, words.end());
  }
  const Node* chosen = &top;
  try {
    root.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    for (const CLI::App* app = &root; !app->get_subcommands().empty();) {
      app = app->get_subcommands()[0];
      for (const auto& [name, node] : nodes) {
        if (node.app == app) chosen = &node;
      }
    }
  } catch (const CLI::ArgumentMismatch& e) {
    std::string text = e.what();
    throw ConfigError("chiron: {} takes a value, and none follows", text.substr(0, text.find(':')));
  } catch (const CLI::ParseError& e) {
    throw ConfigError("chiron: {}", e.what());
  }
  if (chosen->help || (help && chosen != &top)) return {Request::Kind::help, chosen->command};
  if (version) return {Request::Kind::version};
  refuse_extras(table, chosen->command, root.remaining());
  refuse_extras(table, chosen->command, chosen->app->remaining());
  if (!chosen->command) return {Request::Kind::help};
  if (!chosen->command->run) return {Request::Kind::help, chosen->command};
  take_words(*chosen);
  return {Request::Kind::run, chosen->command};
}

namespace {

/// Standard streams that the caller closed would be taken by the first files that are opened, and what is printed would
/// go into them. A reader that went away, or a limit on file sizes, must be an error of the write, not the end of the
/// process: a run saves first.
void prepare_process() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

int output_lost(int error) {
  if (error == EPIPE) return 0;
  return fail(ExitCode::io, fmt::format("cannot write to the standard output: {}", std::strerror(error)).c_str());
}

/// What was printed must have got out; a reader that has seen enough (`| head`) is no failure.
int finish_output(int code) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  return code != 0 || errno == 0 ? code : output_lost(errno);
}

}  // namespace

int run_program(const std::vector<std::string>& words) {
  prepare_process();
  auto say = [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); };
  try {
    std::vector<Command> table = commands();
    Request request = parse(table, words);
    switch (request.kind) {
      case Request::Kind::version:
        say("chiron " CHIRON_VERSION "\n");
        return finish_output(0);
      case Request::Kind::help:
        say(request.command ? command_help(table, *request.command) : program_help(table));
        return finish_output(0);
      case Request::Kind::run:
        break;
    }
    return finish_output(static_cast<int>(request.command->run()));
  } catch (const SaidByFirst& e) {  // another rank prints it
    const auto& error = dynamic_cast<const Error&>(e);
    tell_torchrun(error.what());
    return static_cast<int>(error.code());
  } catch (const Error& e) {
    return fail(e.code(), e.what());
  } catch (const std::system_error& e) {  // of fmt::print
    return std::ferror(stdout) ? output_lost(e.code().value()) : fail(ExitCode::io, e.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::device, "out of memory; `chiron plan` shows what a run needs");
  } catch (const std::exception& e) {
    return fail(ExitCode::bug, e.what());
  }
}

}  // namespace chiron::cli
