#pragma once

#include "ops/embedding/embedding.h"

/// The GPU's side of the ops: arguments as in embedding.h, checked already, on a stream that runs.
namespace chiron::gpu {

/// Sorted tokens that one block of threads sums: an id that has more is cut at these places.
inline constexpr int kEmbeddingPiece = 32;

void embedding(Stream& s, Tensor y, Accum accum, View ids, View w, int64_t first);

/// heads: (pieces, C) f32, scratch: the part of a piece whose id began in an earlier piece.
void embedding_backward(Stream& s, Tensor dw, Accum accum, View dy, const Ids& ids, int64_t first, Tensor heads);

}  // namespace chiron::gpu
