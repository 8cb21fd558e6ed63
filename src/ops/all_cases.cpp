#include "ops/all_cases.h"

namespace chiron {

void for_each_op_case(CaseUse use, const std::function<void(const OpCase&)>& call) {
  for (auto cases : {adamw_cases, attention_cases, cast_cases, cross_entropy_cases, dropout_cases, embedding_cases,
                     gelu_cases, layernorm_cases, linear_cases, norm_cases, residual_cases, rmsnorm_cases, rope_cases,
                     softmax_cases, swiglu_cases})
    for (const OpCase& c : cases(use)) call(c);
}

}  // namespace chiron
