#include "train/sources.h"

#include "data/joined_source.h"
#include "data/synthetic.h"
#include "data/token_set.h"

namespace chiron {
namespace {

std::shared_ptr<const TokenSource> synthetic(const Options& options, int64_t stream) {
  SyntheticOptions s;
  if (options.model.vocab_size > 0) s.vocab_size = options.model.vocab_size;
  s.seed = options.training.seed;
  s.stream = stream;
  return std::make_shared<SyntheticSource>(s);
}

std::shared_ptr<const TokenSource> open_sets(const std::vector<std::string>& folders, Sources& sources) {
  std::vector<std::shared_ptr<const TokenSource>> parts;
  for (const std::string& folder : folders) {
    auto set = std::make_shared<const TokenSet>(folder);
    if (!sources.tokenizer) {
      sources.tokenizer = set->tokenizer();
      sources.vocabulary_hash = set->info().vocabulary_hash;
    } else if (set->info().vocabulary_hash != sources.vocabulary_hash) {
      throw DataError("{}: its tokens were made with another vocabulary than those of {}", folder,
                      parts.empty() ? "the training data" : parts.front()->name());
    }
    parts.push_back(std::move(set));
  }
  if (parts.size() == 1) return parts.front();
  return std::make_shared<JoinedSource>(std::move(parts));
}

}  // namespace

Sources open_sources(const Options& options) {
  Sources sources;
  const DataOptions& data = options.data;
  if (data.synthetic) {
    sources.train = synthetic(options, 0);
    sources.validation = synthetic(options, 1);
    return sources;
  }
  sources.train = open_sets(data.train, sources);
  if (!data.validation.empty()) sources.validation = open_sets(data.validation, sources);
  return sources;
}

}  // namespace chiron
