#include "data/prepare.h"

#include <algorithm>

#include "base/error.h"
#include "base/file_lock.h"
#include "data/text_input.h"
#include "data/token_set.h"
#include "text/bpe_train.h"

namespace chiron {

namespace {

/// Writes one data set, shard by shard.
class SetWriter {
 public:
  SetWriter(std::string folder, const Tokenizer& tokenizer, int64_t shard_tokens)
      : folder_(std::move(folder)), tokenizer_(tokenizer), shard_tokens_(static_cast<size_t>(shard_tokens)) {
    info_.tokenizer = tokenizer.name();
    info_.vocabulary_hash = tokenizer.hash();
    info_.vocab_size = tokenizer.vocab_size();
    info_.end_of_text = tokenizer.end_of_text();
    make_directories(folder_);
  }

  /// A part of the text, as each_part() gives it.
  void add(std::string_view text, bool begins) {
    if (begins) {
      end_document();
      in_document_ = true;
      starts_.push_back(static_cast<int64_t>(tokens_.size()));
    }
    tokenizer_.encode(text, tokens_);
    flush(false);
  }

  PrepareReport::Part finish(const std::string& final_folder) {
    end_document();
    flush(true);
    if (tokenizer_.name() != "byte") write_file(folder_ + "/tokenizer.json", tokenizer_.json());
    write_file(folder_ + "/dataset.json", write_dataset_json(info_));
    fsync_directory(folder_);
    return {final_folder, info_.tokens(), info_.text_bytes(), info_.documents(),
            static_cast<int64_t>(info_.shards.size())};
  }

 private:
  /// Ends the document that is being written, if there is one.
  void end_document() {
    if (info_.end_of_text && in_document_) tokens_.push_back(kEnd);
    in_document_ = false;
    flush(false);
  }

  /// Puts the tokens that end documents in their places. Returns the bytes of text that the others stand for: the same
  /// token may stand in the text.
  int64_t settle(std::span<int32_t> tokens) const {
    int64_t bytes = 0;
    for (int32_t& id : tokens) {
      if (id == kEnd)
        id = *info_.end_of_text;
      else
        bytes += static_cast<int64_t>(tokenizer_.bytes_of(id).size());
    }
    return bytes;
  }

  /// Writes what fills a shard, at the end all that is left.
  void flush(bool all) {
    size_t done = 0;
    while (tokens_.size() - done >= shard_tokens_ || (all && done < tokens_.size())) {
      size_t n = std::min(tokens_.size() - done, shard_tokens_);
      auto split =
          std::partition_point(starts_.begin(), starts_.end(), [&](int64_t s) { return s < static_cast<int64_t>(n); });
      std::vector<int64_t> here(starts_.begin(), split);
      starts_.erase(starts_.begin(), split);
      for (int64_t& s : starts_) s -= static_cast<int64_t>(n);
      TokenFileInfo file;
      auto tokens = std::span(tokens_).subspan(done, n);
      file.text_bytes = settle(tokens);
      file.vocab_size = info_.vocab_size;
      file.vocabulary_hash = info_.vocabulary_hash;
      file.tokenizer = info_.tokenizer;
      std::string name = fmt::format("tokens-{:05}.bin", info_.shards.size());
      info_.shards.push_back({name, write_token_file(folder_ + "/" + name, file, tokens, here)});
      done += n;
    }
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(done));
  }

  static constexpr int32_t kEnd = -1;

  std::string folder_;
  const Tokenizer& tokenizer_;
  size_t shard_tokens_;
  DatasetInfo info_;
  std::vector<int32_t> tokens_;  // not written yet; kEnd ends a document
  std::vector<int64_t> starts_;  // documents among them
  bool in_document_ = false;
};

bool holds_data(const std::string& folder) { return is_dataset(folder) || is_dataset(folder + "/train"); }

/// A name in a data set's folder that no data set has, empty if there is none.
std::string foreign_entry(const std::string& folder) {
  for (const std::string& name : list_directory(folder)) {
    bool part = name == "train" || name == "validation";
    bool ours = part || name == "dataset.json" || name == "tokenizer.json" ||
                (name.starts_with("tokens-") && name.ends_with(".bin"));
    if (!ours) return name;
    if (!part) continue;
    if (std::string below = foreign_entry(folder + "/" + name); !below.empty()) return name + "/" + below;
  }
  return {};
}

void check_target(const std::string& out, bool overwrite) {
  if (!directory_exists(out) || list_directory(out).empty()) return;
  if (!holds_data(out)) throw ConfigError("{}: the folder is not empty and holds no data set; choose another one", out);
  if (!overwrite) throw ConfigError("{}: there is a data set already; choose another folder, or give --overwrite", out);
  if (std::string name = foreign_entry(out); !name.empty())
    throw ConfigError("{}: '{}' in it is no part of a data set; move it away first", out, name);
}

/// A data set's folder while it is built, beside its place and by one process at a time. It takes its place when it is
/// complete and goes away when it is not.
class Building {
 public:
  explicit Building(const std::string& out) : out_(out), lock_path_(hidden_beside(out, "chiron-lock")) {
    make_directories(parent_directory(out));
    lock_.emplace(lock_path_);
    // Another process was killed while it replaced the set.
    if (directory_exists(old_) && !directory_exists(out_)) rename_path(old_, out_);
    remove_tree(path_);
    make_directories(path_);
  }
  ~Building() {
    try {
      remove_tree(path_);
      remove_file(lock_path_);
    } catch (const Error&) {  // the error that brought us here is the one to report
    }
  }
  Building(const Building&) = delete;
  Building& operator=(const Building&) = delete;

  const std::string& path() const { return path_; }
  /// At every moment the old set or the new one is in place, but where the file system cannot exchange them.
  void take_place() {
    const bool there = directory_exists(out_);
    if (!there || !exchange_paths(path_, out_)) {
      if (there) rename_path(out_, old_);
      try {
        rename_path(path_, out_);
      } catch (const Error&) {
        if (there) rename_path(old_, out_);
        throw;
      }
    }
    fsync_directory(parent_directory(out_));
    remove_tree(path_);
    remove_tree(old_);
  }

 private:
  std::string out_, lock_path_, path_ = hidden_beside(out_, "chiron-new"), old_ = set_aside(out_);
  std::optional<FileLock> lock_;
};

std::unique_ptr<Tokenizer> choose_tokenizer(const PrepareOptions& o, const TextInputs& inputs,
                                            const std::vector<TextRange>& training) {
  if (o.train_bpe == 0) return open_tokenizer(o.tokenizer.empty() ? "byte" : o.tokenizer);
  BpeTrainer trainer;
  auto bytes_only = BpeTrainer().train(BpeTrainer::kSmallest);  // where text may be cut does not depend on the merges
  each_part(
      inputs, training, o.document_separator, [&](std::string_view text) { return bytes_only->safe_cut(text); },
      [&](std::string_view part, bool) { trainer.add(part); });
  return trainer.train(o.train_bpe);
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options) {
  PrepareOptions o = options;
  o.out = renamable_directory(o.out);
  if (!(o.validation >= 0 && o.validation < 1))
    throw ConfigError("the validation part {} must be 0 or more and less than 1", o.validation);
  if (o.shard_tokens < 1) throw ConfigError("a shard must hold at least 1 token, not {}", o.shard_tokens);
  if (o.train_bpe != 0 && o.train_bpe < BpeTrainer::kSmallest)
    throw ConfigError("--train-bpe {}: allowed are {} (256 bytes and the end of text) and more, or 0", o.train_bpe,
                      BpeTrainer::kSmallest);
  TextInputs inputs = find_text(o.inputs);
  auto [training, held_out] = split_text(inputs, o.validation, o.document_separator);
  if (training.empty() || (o.validation > 0 && held_out.empty()))
    throw DataError("{} bytes of text are too few to cut a part of {} off for validation", inputs.bytes(),
                    o.validation);
  Building building(o.out);
  check_target(o.out, o.overwrite);
  auto tokenizer = choose_tokenizer(o, inputs, training);

  auto write = [&](const std::vector<TextRange>& ranges, const std::string& below) {
    SetWriter writer(building.path() + below, *tokenizer, o.shard_tokens);
    each_part(
        inputs, ranges, o.document_separator, [&](std::string_view text) { return tokenizer->safe_cut(text); },
        [&](std::string_view part, bool begins) { writer.add(part, begins); });
    PrepareReport::Part part = writer.finish(o.out + below);
    if (part.tokens == 0) throw DataError("{}: no text is left between the separators", o.inputs[0]);
    return part;
  };
  PrepareReport report;
  report.train = write(training, o.validation > 0 ? "/train" : "");
  if (o.validation > 0) report.validation = write(held_out, "/validation");
  report.tokenizer = tokenizer->name();
  report.vocab_size = tokenizer->vocab_size();
  report.files = static_cast<int64_t>(inputs.files.size());
  report.empty_files = inputs.empty_files;
  report.passed_over = std::move(inputs.passed_over);
  fsync_directory(building.path());
  building.take_place();
  return report;
}

}  // namespace chiron
