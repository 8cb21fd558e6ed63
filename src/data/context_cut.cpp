#include "data/context_cut.h"

#include <algorithm>

#include "base/error.h"

namespace chiron {

void cut_sequences(const HostBatch& whole, int64_t context_ranks, int64_t context_rank, HostBatch& part) {
  const int64_t chunk = whole.length / (2 * context_ranks);
  part.sequences = whole.sequences;
  part.length = 2 * chunk;
  for (auto array :
       {&HostBatch::tokens, &HostBatch::positions, &HostBatch::labels, &HostBatch::starts, &HostBatch::index}) {
    const std::vector<int32_t>& from = whole.*array;
    std::vector<int32_t>& to = part.*array;
    to.resize(from.size() / static_cast<size_t>(context_ranks));
    if (from.empty()) continue;
    auto at = to.begin();
    for (const int64_t number : {context_rank, 2 * context_ranks - 1 - context_rank})
      for (int64_t row = 0; row < whole.sequences; ++row)
        at = std::copy_n(from.begin() + row * whole.length + number * chunk, chunk, at);
  }
}

void validate_cuts(const LoaderOptions& o) {
  const int64_t chunks = 2 * o.context_ranks, low = o.length / chunks * chunks;
  if (o.context_ranks > 1 && o.length != low)
    throw ConfigError(
        "sequences of {} tokens cannot be cut into {} equal chunks, two for each context rank (parallel.cp {}): what "
        "would "
        "do are multiples of {}, such as {} or {}",
        o.length, chunks, o.context_ranks, chunks, std::max(low, chunks), std::max(low, chunks) + chunks);
  const int64_t rows = o.sequences * o.rank_length();
  if (rows % o.row_ranks != 0)
    throw ConfigError(
        "sequence parallelism over {} ranks (parallel.tp): they cannot share out the {} tokens of a micro-batch of {} "
        "sequences x {} tokens{}; make that a multiple of {}",
        o.row_ranks, rows, o.sequences, o.length,
        o.context_ranks > 1 ? fmt::format(" over {} context ranks", o.context_ranks) : "", o.row_ranks);
}

}  // namespace chiron
