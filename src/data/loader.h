#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/batch.h"
#include "data/token_source.h"

namespace chiron {

/// One micro-batch of one rank in host memory: the arrays of core/batch.h, sequences * length elements each.
struct HostBatch {
  int64_t sequences = 0, length = 0;
  std::vector<int32_t> tokens, token_order, positions, position_order, labels;
  std::vector<int32_t> starts;  ///< empty without a document mask
  std::vector<int32_t> index;
};

/// What one rank sees in one step.
struct HostStep {
  int64_t step = -1;
  std::vector<HostBatch> micros;
  /// Memory that fill() uses again; no meaning of its own.
  std::vector<int32_t> scratch;
  HostBatch whole;
};

struct LoaderOptions {
  int64_t sequences = 1;  ///< per micro-batch and rank
  int64_t length = 1;     ///< tokens per sequence
  int64_t micros = 1;     ///< micro-batches per step
  int64_t rank = 0, num_ranks = 1;
  int64_t context_rank = 0, context_ranks = 1;  ///< each of these has a part of every sequence, as core/batch.h says
  int64_t row_ranks = 1;                        ///< ranks that share out a batch's rows: sequence parallelism
  int64_t seed = 0;
  bool shuffle = true;
  /// Documents do not see each other: positions restart at each, and the last token of one has no label.
  bool document_mask = false;
  /// Evaluation: in order, every token but the first is a label exactly once, then it ends. The last sequence and the
  /// last step are filled up with labels that do not count. Excludes shuffle.
  bool once = false;

  /// Tokens per sequence on one context rank.
  int64_t rank_length() const { return length / context_ranks; }
};

/// Cuts a source into samples and deals them to steps, micro-batches and ranks. Sample i is tokens
/// i*length .. i*length+length, the last only as a label. Each epoch is a permutation of all samples; epochs follow
/// each other without a gap, and step n takes the next sequences * micros * num_ranks of them: sample g of a step is
/// row g % sequences of micro-batch g / (sequences*num_ranks) on rank (g / sequences) % num_ranks.
class Loader {
 public:
  /// Throws ConfigError for options that cannot be (it says what would do), DataError that names the source if it is
  /// too short: num_ranks * sequences * (length + 1) tokens are needed, with `once` 2.
  Loader(std::shared_ptr<const TokenSource> source, const LoaderOptions& options);

  const LoaderOptions& options() const { return options_; }
  const TokenSource& source() const { return *source_; }
  /// Samples of an epoch. What is left over at the end of the source, less than a sample, is used with `once` only.
  int64_t num_samples() const { return num_samples_; }
  int64_t samples_per_step() const { return options_.sequences * options_.micros * options_.num_ranks; }
  /// Tokens of a step over all ranks.
  int64_t tokens_per_step() const { return samples_per_step() * options_.length; }
  /// Steps that there are: with `once` as many as hold every sample, else as many as can be counted.
  int64_t num_steps() const { return num_steps_; }

  /// Everything this rank needs in a step: a pure function of the options and `step` (0 <= step < num_steps()), as fast
  /// for a late step as for the first. Allocates only if `out` has not been filled by this loader before.
  void fill(int64_t step, HostStep& out) const;

 private:
  void fill_row(int64_t sample, HostBatch& out, int64_t row, std::vector<int32_t>& window) const;
  void fill_documents(int64_t begin, int64_t valid, HostBatch& out, int64_t row) const;

  std::shared_ptr<const TokenSource> source_;
  LoaderOptions options_;
  int64_t num_samples_ = 0, num_steps_ = 0;
};

/// order: the stable permutation that sorts `ids`, all in 0 .. bound-1. `counts` is scratch.
void sort_order(const std::vector<int32_t>& ids, int64_t bound, std::vector<int32_t>& order,
                std::vector<int32_t>& counts);

}  // namespace chiron
