#include "ops/all_cases.h"

#include <algorithm>

namespace chiron {

std::span<const OpFolder> op_folders() {
  static constexpr OpFolder kFolders[] = {
      {"adamw", adamw_cases},       {"attention", attention_cases},
      {"cast", cast_cases},         {"cross_entropy", cross_entropy_cases},
      {"dropout", dropout_cases},   {"embedding", embedding_cases},
      {"gelu", gelu_cases},         {"layernorm", layernorm_cases},
      {"linear", linear_cases},     {"norm", norm_cases},
      {"residual", residual_cases}, {"rmsnorm", rmsnorm_cases},
      {"rope", rope_cases},         {"softmax", softmax_cases},
      {"swiglu", swiglu_cases},
  };
  return kFolders;
}

void for_each_op_case(CaseUse use, const std::function<void(const OpCase&)>& call) {
  for (const OpFolder& folder : op_folders()) {
    std::vector<OpCase> cases = folder.cases(use);
    std::ranges::stable_sort(cases, {}, &OpCase::op);
    for (const OpCase& c : cases) call(c);
  }
}

}  // namespace chiron
