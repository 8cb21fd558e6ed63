#pragma once

#include <vector>

#include "ops/op_case.h"

namespace chiron {

/// The cases of each op, defined in ops/<op>/<op>_cases.cpp.
std::vector<OpCase> adamw_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> cast_cases();
std::vector<OpCase> cross_entropy_cases();
std::vector<OpCase> dropout_cases();
std::vector<OpCase> embedding_cases();
std::vector<OpCase> gelu_cases();
std::vector<OpCase> layernorm_cases();
std::vector<OpCase> linear_cases();
std::vector<OpCase> norm_cases();
std::vector<OpCase> residual_cases();
std::vector<OpCase> rmsnorm_cases();
std::vector<OpCase> rope_cases();
std::vector<OpCase> softmax_cases();
std::vector<OpCase> swiglu_cases();

/// All of them, in alphabetical order of the op.
std::vector<OpCase> all_op_cases();

}  // namespace chiron
