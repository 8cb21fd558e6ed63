#include "cli/model_commands.h"

#include <cerrno>
#include <charconv>
#include <cstdio>

#include "base/files.h"
#include "text/utf8.h"
#include "train/device_stream.h"
#include "train/generate.h"
#include "train/setup.h"

namespace chiron::cli {
namespace {

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    if (*at == ',' || *at == ' ') {
      ++at;
      continue;
    }
    int32_t id = 0;
    auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc{})
      throw ConfigError("--prompt-ids: \"{}\" is no token id; ids are whole numbers, separated by commas or spaces",
                        std::string(at, std::find_if(at, end, [](char c) { return c == ',' || c == ' '; })));
    ids.push_back(id);
    at = next;
  }
  return ids;
}

/// To the standard output, at once. Returns false when its reader has gone.
bool put(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return true;
  if (errno == EPIPE) return false;
  throw_io_error("write to", "the standard output", errno);
}

/// Hands text on as it comes, in whole characters, and never more than is known not to begin a stop text.
class Output {
 public:
  explicit Output(const std::vector<std::string>& stops) : stops_(stops) {}

  /// false: a stop text came, or the reader has gone.
  bool add(std::string_view bytes) {
    held_ += bytes;
    size_t cut = std::string::npos;
    for (const std::string& stop : stops_) cut = std::min(cut, held_.find(stop));
    if (cut != std::string::npos) {
      held_.resize(cut);
      return false;
    }
    size_t keep = held_.size() - complete_utf8(held_);
    for (const std::string& stop : stops_)
      for (size_t n = std::min(stop.size(), held_.size()); n > keep; --n)
        if (held_.ends_with(stop.substr(0, n))) keep = n;
    const std::string ready = held_.substr(0, held_.size() - keep);
    held_.erase(0, ready.size());
    return put(ready);
  }
  void finish() { put(held_ + "\n"); }

 private:
  const std::vector<std::string>& stops_;
  std::string held_;
};

}  // namespace

ExitCode generate(const GenerateArgs& args) {
  if (args.prompt.empty() && args.prompt_ids.empty())
    throw ConfigError("give a prompt: --prompt TEXT, or --prompt-ids IDS");
  if (!args.prompt.empty() && !args.prompt_ids.empty())
    throw ConfigError("--prompt and --prompt-ids are both given: take one of them");
  if (!args.prompt_ids.empty() && !args.stop.empty())
    throw ConfigError("--stop {}: with --prompt-ids there is no text for it to appear in; leave it out", args.stop[0]);
  for (const std::string& stop : args.stop)
    if (stop.empty()) throw ConfigError("--stop \"\": an empty text appears everywhere; leave it out");
  Log log;
  ThreadPool pool(static_cast<int>(args.threads));
  DeviceStream device = open_stream(args.device, pool, log);
  Stream& s = device.stream;
  const SavedModel m = open_model(s, args.model, {}, log);
  if (!args.prompt.empty() && !m.tokenizer)
    throw DataError("{}: has no tokenizer.json, so text means nothing to it; use --prompt-ids", m.dir);
  const bool as_text = !args.prompt.empty();
  const auto prompt = as_text ? m.tokenizer->encode(args.prompt) : parse_ids(args.prompt_ids);
  if (const int64_t n = std::ssize(prompt), context = m.model->config().max_seq_len; n > context)
    log.warning("the prompt has {} tokens: the model's context is {}, so only the last {} are read", n, context,
                context);
  const auto end = m.tokenizer ? m.tokenizer->end_of_text() : std::nullopt;
  const Sampling sampling{args.temperature, args.top_k, args.top_p, static_cast<uint64_t>(args.seed)};
  Output out(args.stop);
  if (as_text && !put(args.prompt)) return ExitCode::done;
  bool first = true;
  generate(s, m, prompt, sampling, args.max_tokens, [&](int32_t id) {
    if (as_text) return id != end && out.add(m.tokenizer->bytes_of(id));
    const bool read = put(fmt::format("{}{}", first ? "" : ",", id));
    first = false;
    return read && id != end;
  });
  if (as_text)
    out.finish();
  else
    put("\n");
  return ExitCode::done;
}

}  // namespace chiron::cli
