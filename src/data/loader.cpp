#include "data/loader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "data/context_cut.h"
#include "data/permutation.h"

namespace chiron {

void sort_order(const std::vector<int32_t>& ids, int64_t bound, std::vector<int32_t>& order,
                std::vector<int32_t>& counts) {
  counts.assign(static_cast<size_t>(bound), 0);
  order.resize(ids.size());
  for (int32_t id : ids) ++counts[static_cast<size_t>(id)];
  std::exclusive_scan(counts.begin(), counts.end(), counts.begin(), 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    int32_t& place = counts[static_cast<size_t>(ids[i])];
    order[static_cast<size_t>(place++)] = static_cast<int32_t>(i);
  }
}

Loader::Loader(std::shared_ptr<const TokenSource> source, const LoaderOptions& options)
    : source_(std::move(source)), options_(options) {
  const LoaderOptions& o = options_;
  auto at_least_one = [](const char* what, int64_t n) {
    if (n < 1) throw ConfigError("{} must be at least 1, not {}", what, n);
  };
  at_least_one("the number of sequences per micro-batch", o.sequences);
  at_least_one("the sequence length", o.length);
  at_least_one("the number of micro-batches per step", o.micros);
  CHECK(o.num_ranks >= 1 && o.rank >= 0 && o.rank < o.num_ranks, "rank {} of {}", o.rank, o.num_ranks);
  CHECK(o.context_rank >= 0 && o.context_rank < o.context_ranks && o.row_ranks >= 1);
  CHECK(!(o.once && o.shuffle), "one pass in order is not shuffled");
  validate_cuts(o);
  int64_t most = std::numeric_limits<int32_t>::max();  // tokens of a step are numbered in i32
  for (int64_t n : {o.sequences, o.length, o.micros, o.num_ranks}) most /= n;
  if (most == 0)
    throw ConfigError("a step of {} sequences x {} tokens x {} micro-batches x {} ranks has more than 2^31 tokens",
                      o.sequences, o.length, o.micros, o.num_ranks);

  int64_t tokens = source_->num_tokens();
  int64_t needed = o.once ? 2 : o.num_ranks * o.sequences * (o.length + 1);
  if (tokens < needed) {
    if (o.once)
      throw DataError("{}: {} tokens are too few to evaluate: at least 2 are needed", source_->name(), tokens);
    throw DataError(
        "{}: {} tokens are too few: {} ranks x {} sequences x ({} + 1) tokens need {}; use more text, or a smaller "
        "batch "
        "size or sequence length",
        source_->name(), tokens, o.num_ranks, o.sequences, o.length, needed);
  }
  num_samples_ = o.once ? (tokens - 2) / o.length + 1 : (tokens - 1) / o.length;
  num_steps_ =
      o.once ? (num_samples_ - 1) / samples_per_step() + 1 : std::numeric_limits<int64_t>::max() / tokens_per_step();
}

void Loader::fill(int64_t step, HostStep& out) const {
  CHECK(step >= 0 && step < num_steps_, "step {} of {}", step, num_steps_);
  const LoaderOptions& o = options_;
  out.step = step;
  out.micros.resize(static_cast<size_t>(o.micros));
  std::optional<Permutation> order;
  int64_t order_epoch = -1;
  for (int64_t m = 0; m < o.micros; ++m) {
    HostBatch& of_rank = out.micros[static_cast<size_t>(m)];
    HostBatch& batch = o.context_ranks > 1 ? out.whole : of_rank;
    batch.sequences = o.sequences;
    batch.length = o.length;
    auto rows = static_cast<size_t>(o.sequences * o.length);
    for (auto* array : {&batch.tokens, &batch.positions, &batch.labels, &batch.index}) array->resize(rows);
    batch.starts.resize(o.document_mask ? rows : 0);
    for (int64_t row = 0; row < o.sequences; ++row) {
      int64_t g = (m * o.num_ranks + o.rank) * o.sequences + row;
      int64_t sample = step * samples_per_step() + g;
      if (!o.once) {
        int64_t epoch = sample / num_samples_;
        sample %= num_samples_;
        if (o.shuffle) {
          if (epoch != order_epoch) order.emplace(num_samples_, o.seed, epoch);
          order_epoch = epoch;
          sample = (*order)(sample);
        }
      }
      std::iota(batch.index.begin() + row * o.length, batch.index.begin() + (row + 1) * o.length,
                static_cast<int32_t>(g * o.length));
      fill_row(sample, batch, row, out.scratch);
    }
    if (o.context_ranks > 1) cut_sequences(batch, o.context_ranks, o.context_rank, of_rank);
    sort_order(of_rank.tokens, source_->vocab_size(), of_rank.token_order, out.scratch);
    sort_order(of_rank.positions, o.length, of_rank.position_order, out.scratch);
  }
}

void Loader::fill_row(int64_t sample, HostBatch& out, int64_t row, std::vector<int32_t>& window) const {
  int64_t length = options_.length, begin = sample * length;
  // Labels that exist; fewer than `length` only at the end of a single pass.
  int64_t valid = sample < num_samples_ ? std::min(length, source_->num_tokens() - 1 - begin) : 0;
  auto tokens = out.tokens.begin() + row * length, labels = out.labels.begin() + row * length;
  window.resize(static_cast<size_t>(valid + 1));
  if (valid > 0) source_->read(begin, window);
  std::copy_n(window.begin(), valid, tokens);
  std::copy_n(window.begin() + 1, valid, labels);
  std::fill(tokens + valid, tokens + length, 0);
  std::fill(labels + valid, labels + length, kIgnore);
  std::iota(out.positions.begin() + row * length, out.positions.begin() + (row + 1) * length, 0);
  if (options_.document_mask) fill_documents(begin, valid, out, row);
}

void Loader::fill_documents(int64_t begin, int64_t valid, HostBatch& out, int64_t row) const {
  int64_t length = options_.length;
  auto at = [&](std::vector<int32_t>& array, int64_t i) -> int32_t& {
    return array[static_cast<size_t>(row * length + i)];
  };
  int64_t start = 0;
  for (int64_t i = 0; i < length;) {
    // A filling token is a document of its own: nothing before it changes, whatever it is.
    int64_t end = i < valid ? std::min(source_->next_document(begin + i) - begin, length) : i + 1;
    if (i < valid && end > valid) end = valid;
    start = i;
    for (; i < end; ++i) {
      at(out.starts, i) = static_cast<int32_t>(start);
      at(out.positions, i) = static_cast<int32_t>(i - start);
    }
    if (end <= valid && source_->next_document(begin + end - 1) == begin + end) at(out.labels, end - 1) = kIgnore;
  }
}

}  // namespace chiron
