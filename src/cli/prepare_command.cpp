#include "cli/prepare_command.h"

#include <algorithm>
#include <cstdio>

#include "base/numbers.h"
#include "data/prepare.h"

namespace chiron::cli {
namespace {

void print(const PrepareReport::Part& part) {
  fmt::print("{}: {} of {} of text ({:.2f} bytes per token), {}, {}\n", part.folder, counted(part.tokens, "token"),
             counted(part.text_bytes, "byte"), part.bytes_per_token(), counted(part.documents, "document"),
             counted(part.shards, "shard"));
}

}  // namespace

ExitCode prepare(const PrepareArgs& args) {
  if (!args.tokenizer.empty() && args.train_bpe > 0)
    throw ConfigError("--tokenizer {} and --train-bpe {}: take one of them", args.tokenizer, args.train_bpe);
  const PrepareReport report = chiron::prepare(args);
  fmt::print("tokenizer {}, {}; {} read", report.tokenizer, counted(report.vocab_size, "token"),
             counted(report.files, "file"));
  if (report.empty_files > 0) fmt::print(", {} passed over", counted(report.empty_files, "empty file"));
  fmt::print("\n");
  if (report.vocab_size < args.train_bpe)
    fmt::print("of the {} tokens asked for, {} could be learnt: no further pair of tokens occurs twice in the text\n",
               with_commas(args.train_bpe), with_commas(report.vocab_size));
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(report.passed_over.size(), kShown); ++i)
    fmt::print("passed over {}\n", report.passed_over[i]);
  if (report.passed_over.size() > kShown) fmt::print("and {} more\n", report.passed_over.size() - kShown);
  print(report.train);
  if (report.validation) print(*report.validation);
  return ExitCode::done;
}

}  // namespace chiron::cli
