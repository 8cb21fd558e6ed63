#include "cli/prepare_command.h"

#include <algorithm>
#include <cstdio>

#include "base/numbers.h"
#include "data/prepare.h"

namespace chiron::cli {
namespace {

void print(const PrepareReport::Part& part) {
  fmt::print("{}: {} tokens of {} bytes of text ({:.2f} bytes per token), {} documents, {} shards\n", part.folder,
             with_commas(part.tokens), with_commas(part.text_bytes), part.bytes_per_token(),
             with_commas(part.documents), part.shards);
}

}  // namespace

ExitCode prepare(const PrepareArgs& args) {
  if (!args.tokenizer.empty() && args.train_bpe > 0)
    throw ConfigError("--tokenizer {} and --train-bpe {}: take one of them", args.tokenizer, args.train_bpe);
  const PrepareReport report = chiron::prepare({.inputs = args.inputs,
                                                .out = args.out,
                                                .tokenizer = args.tokenizer.empty() ? "byte" : args.tokenizer,
                                                .train_bpe = args.train_bpe,
                                                .validation = args.validation,
                                                .document_separator = args.document_separator,
                                                .shard_tokens = args.shard_tokens,
                                                .overwrite = args.overwrite});
  fmt::print("tokenizer {}, {} tokens; {} files read", report.tokenizer, with_commas(report.vocab_size), report.files);
  if (report.empty_files > 0) fmt::print(", {} empty ones passed over", report.empty_files);
  fmt::print("\n");
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(report.passed_over.size(), kShown); ++i)
    fmt::print("passed over {}\n", report.passed_over[i]);
  if (report.passed_over.size() > kShown) fmt::print("and {} more\n", report.passed_over.size() - kShown);
  print(report.train);
  if (report.validation) print(*report.validation);
  return ExitCode::done;
}

}  // namespace chiron::cli
