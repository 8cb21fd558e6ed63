#include "ops/all_cases.h"

#include <iterator>

namespace chiron {

std::vector<OpCase> all_op_cases() {
  std::vector<OpCase> all;
  for (auto cases : {adamw_cases, attention_cases, cast_cases, cross_entropy_cases, dropout_cases, embedding_cases,
                     gelu_cases, layernorm_cases, linear_cases, norm_cases, residual_cases, rmsnorm_cases, rope_cases,
                     softmax_cases, swiglu_cases}) {
    auto some = cases();
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return all;
}

}  // namespace chiron
