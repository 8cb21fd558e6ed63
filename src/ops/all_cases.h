#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ops/op_case.h"

namespace chiron {

/// The cases of each op, defined in ops/<op>/<op>_cases.cpp.
std::vector<OpCase> adamw_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> attention_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> cast_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> cross_entropy_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> dropout_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> embedding_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> gelu_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> layernorm_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> linear_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> norm_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> residual_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> rmsnorm_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> rope_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> softmax_cases(CaseUse use = CaseUse::check);
std::vector<OpCase> swiglu_cases(CaseUse use = CaseUse::check);

/// The folders of ops and their cases, in alphabetical order.
struct OpFolder {
  const char* name;
  std::vector<OpCase> (*cases)(CaseUse);
};
std::span<const OpFolder> op_folders();

/// All cases, in that order and within a folder by op, one folder's in memory at a time.
void for_each_op_case(CaseUse use, const std::function<void(const OpCase&)>& call);

}  // namespace chiron
