#pragma once

#include "core/batch.h"
#include "core/param.h"
#include "core/stack.h"
#include "core/stream.h"

namespace chiron {

/// y[t] = w[ids[t] - first]  (or y[t] +=), for a table that holds rows [first, first + rows of w) of the vocabulary;
/// ids outside it contribute 0 (another rank's part).  ids: (T) i32; w: (V, C); y: (T, C), one float kind.
void embedding(Stream& s, Tensor y, Accum accum, View ids, View w, int64_t first);

/// dw[v] = sum of dy[t] over tokens t with ids[t] - first == v (or dw[v] +=), summed in the order of t within an id; a
/// GPU sums long runs of an id as partial sums over fixed pieces of the sorted tokens. Overwrite sets rows that no
/// token has to zero.  dy: (T, C); dw: (V, C) acc_dtype(dy).
void embedding_backward(Stream& s, Tensor dw, Accum accum, View dy, const Ids& ids, int64_t first, Stack& temp);

}  // namespace chiron
