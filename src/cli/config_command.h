#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace chiron::cli {

struct ConfigShowArgs {
  std::string config;
  std::vector<std::string> sets;

  void describe(Command& c);
};

struct ConfigCheckArgs {
  std::vector<std::string> configs;
  std::vector<std::string> sets;

  void describe(Command& c);
};

enum class SchemaFormat : uint8_t { text, json, markdown };
constexpr std::array<std::string_view, 3> names_of(SchemaFormat) { return {"text", "json", "markdown"}; }

struct ConfigSchemaArgs {
  SchemaFormat format = SchemaFormat::text;

  void describe(Command& c);
};

struct ConfigInitArgs {
  std::string file;

  void describe(Command& c);
};

/// Prints the resolved configuration as YAML.
ExitCode config_show(const ConfigShowArgs& args);
/// Throws ConfigError at the first configuration that cannot be.
ExitCode config_check(const ConfigCheckArgs& args);
/// Prints all options.
ExitCode config_schema(const ConfigSchemaArgs& args);
/// Writes a commented configuration to start from; never over an existing file.
ExitCode config_init(const ConfigInitArgs& args);

/// The reference of all options in the given format; docs/config.md is the Markdown.
std::string schema_document(SchemaFormat format);
/// What config_init writes.
std::string starter_document();

}  // namespace chiron::cli
