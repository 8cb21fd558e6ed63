#include "cli/model_commands.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/numbers.h"
#include "train/device_stream.h"
#include "train/evaluate.h"
#include "train/setup.h"
#include "train/sources.h"

namespace chiron::cli {

ExitCode eval(const EvalArgs& args) {
  Log log;
  ThreadPool pool(static_cast<int>(args.threads));
  DeviceStream device = open_stream(args.device, pool, log);
  Stream& s = device.stream;
  const auto source = open_token_sets(args.data, std::numeric_limits<int64_t>::max(), log);
  const SavedModel m = open_model(s, args.model, {}, log);
  constexpr int64_t kLongest = 4096;  // a default whose logits fit into memory
  const int64_t context = m.model->config().max_seq_len;
  if (args.seq_len > context)
    throw ConfigError("--seq-len {}: the model takes {} tokens at most", args.seq_len, context);
  int64_t length = args.seq_len > 0 ? args.seq_len : std::min(context, kLongest);
  // No more memory than the data fills.
  length = std::clamp<int64_t>(source.source->num_tokens() - 1, 1, length);
  if (args.seq_len == 0 && length == kLongest && length < context)
    log.info("in sequences of {} tokens; the model takes {}: --seq-len sets another length", length, context);
  if (source.source->vocab_size() > m.model->config().vocab_size)
    throw DataError("{}: has {} tokens, but the model's vocabulary has {}", source.source->name(),
                    source.source->vocab_size(), m.model->config().vocab_size);
  if (m.tokenizer && source.tokenizer && m.tokenizer->hash() != source.tokenizer->hash())
    throw DataError("{}: its tokens were made with another vocabulary than the model's", source.source->name());
  LoaderOptions pass{.sequences = 1, .length = length, .shuffle = false, .once = true};
  pass.sequences = std::min(args.batch_size, Loader(source.source, pass).num_samples());
  const Loader loader(source.source, pass);
  const Evaluation e = evaluate_model(s, m, loader);
  fmt::print("loss {:.4f} nats per token, perplexity {:.3f}, {}", e.loss(), e.perplexity(), counted(e.tokens, "token"));
  if (double bits = e.bits_per_byte(*source.source); bits > 0) fmt::print(", {:.4f} bits per byte", bits);
  fmt::print("\n");
  return ExitCode::done;
}

}  // namespace chiron::cli
