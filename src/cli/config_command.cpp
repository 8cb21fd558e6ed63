#include <cerrno>  // program_invocation_name
#include <cstdio>

#include "base/complaints.h"
#include "base/files.h"
#include "base/schema_docs.h"
#include "cli/run_commands.h"
#include "train/options.h"

namespace chiron::cli {

ExitCode config_show(const ConfigShowArgs& args) {
  fmt::print("{}", to_yaml(load_options(args.config, args.sets)));
  return ExitCode::done;
}

ExitCode config_check(const ConfigCheckArgs& args) {
  Complaints complaints;
  for (const std::string& file : args.configs)
    complaints.collect([&] {
      load_options(file, args.sets);
      fmt::print("{}: good\n", file);
    });
  complaints.raise();
  return ExitCode::done;
}

std::string schema_document(SchemaFormat format) {
  Options options;
  Schema schema(options);
  switch (format) {
    case SchemaFormat::text:
      return schema_text(schema);
    case SchemaFormat::json:
      return schema_json(schema, "Chiron run configuration");
    case SchemaFormat::markdown:
      break;
  }
  return "# Options of a run\n\n"
         "Written by `chiron config schema --format markdown`.\n\n"
         "A configuration is a YAML file with these groups; `--set group.option=value` on the command line wins over "
         "the file. Truth values are `true` and `false`. Whole numbers are decimal, and `k`, `M`, `G` stand for 10^3, "
         "10^6, 10^9: `512k` is 512000. Unknown and duplicate keys are errors. `fixed` options define the numbers that "
         "a run computes: a run is not resumed with another value.\n" +
         schema_markdown(schema);
}

std::string starter_document() {
  Options options;
  Schema schema(options);
  // Trains in a minute on two cores, with no data at hand.
  for (const char* live :
       {"model.num_layers=4", "model.d_model=128", "model.num_heads=4", "model.dropout=0.1", "training.batch_size=16",
        "training.seq_len=128", "training.max_steps=500", "data.synthetic=true"}) {
    schema.set(live);
  }
  return "# A run of `chiron train`. Lines that begin with # and a name show defaults.\n\n" + schema_starter(schema);
}

ExitCode config_schema(const ConfigSchemaArgs& args) {
  fmt::print("{}", schema_document(args.format));
  return ExitCode::done;
}

ExitCode config_init(const ConfigInitArgs& args) {
  std::string text = starter_document();
  if (args.file.empty()) {
    fmt::print("{}", text);
    return ExitCode::done;
  }
  if (file_exists(args.file) || directory_exists(args.file))
    throw ConfigError("{} exists; choose another name or remove it", args.file);
  write_file(args.file, text);
  fmt::print("wrote {}; next: {} train {}\n", args.file, program_invocation_name, args.file);
  return ExitCode::done;
}

}  // namespace chiron::cli
