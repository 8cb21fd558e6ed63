#include "cli/generate_command.h"

#include <charconv>
#include <cstdio>

#include "text/utf8.h"
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

/// Hands text on as it comes, in whole characters, and never more than is known not to begin a stop text.
class Output {
 public:
  explicit Output(const std::vector<std::string>& stops) : stops_(stops) {}

  /// false: a stop text came.
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
    put(held_.size() - keep);
    return true;
  }
  void finish() {
    put(held_.size());
    std::fputs("\n", stdout);
  }

 private:
  void put(size_t n) {
    std::fwrite(held_.data(), 1, n, stdout);
    std::fflush(stdout);
    held_.erase(0, n);
  }
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
  Log log;
  ThreadPool pool(static_cast<int>(args.threads));
  Stream s(choose_device(args.device), pool);
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
  if (as_text) out.add(args.prompt);
  bool first = true;
  generate(s, m, prompt, sampling, args.max_tokens, [&](int32_t id) {
    if (as_text) return id != end && out.add(m.tokenizer->bytes_of(id));
    fmt::print("{}{}", first ? "" : ",", id);
    std::fflush(stdout);
    first = false;
    return id != end;
  });
  if (as_text)
    out.finish();
  else
    fmt::print("\n");
  return ExitCode::done;
}

}  // namespace chiron::cli
