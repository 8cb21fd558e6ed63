#include "train/sources.h"

#include "base/numbers.h"
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

}  // namespace

TokenSets open_token_sets(const std::vector<std::string>& folders, int64_t verify, Log& log) {
  TokenSets sets;
  std::vector<std::shared_ptr<const TokenSource>> parts;
  std::string hash;
  for (const std::string& folder : folders) {
    auto set = std::make_shared<const TokenSet>(folder);
    int64_t bytes = 0;
    for (const ShardEntry& shard : set->info().shards) bytes += shard.info.file_bytes();
    if (bytes <= verify)
      set->verify();
    else
      log.info("{}: {} are not compared with their checksums now; `chiron eval --data` does it", folder,
               bytes_text(bytes));
    if (parts.empty()) {
      sets.tokenizer = set->tokenizer();
      hash = set->info().vocabulary_hash;
    } else if (set->info().vocabulary_hash != hash) {
      throw DataError("{}: its tokens were made with another vocabulary than those of {}", folder, folders.front());
    }
    parts.push_back(std::move(set));
  }
  sets.source = parts.size() == 1 ? parts.front() : std::make_shared<JoinedSource>(std::move(parts));
  return sets;
}

int64_t data_vocabulary(const Options& options) {
  const DataOptions& data = options.data;
  if (data.synthetic) return synthetic(options, 0)->vocab_size();
  return !data.train.empty() && is_dataset(data.train.front()) ? TokenSet(data.train.front()).vocab_size() : 0;
}

Sources open_sources(const Options& options, Log& log) {
  constexpr int64_t kVerify = int64_t{1} << 30;  // a second's reading
  Sources sources;
  const DataOptions& data = options.data;
  if (data.synthetic) {
    sources.train = synthetic(options, 0);
    sources.validation = synthetic(options, 1);
    return sources;
  }
  TokenSets train = open_token_sets(data.train, kVerify, log);
  sources.train = train.source;
  sources.tokenizer = train.tokenizer;
  if (data.validation.empty()) return sources;
  TokenSets validation = open_token_sets(data.validation, kVerify, log);
  if (validation.tokenizer->hash() != train.tokenizer->hash())
    throw DataError("{}: its tokens were made with another vocabulary than those of {}", data.validation.front(),
                    data.train.front());
  sources.validation = validation.source;
  return sources;
}

}  // namespace chiron
