#pragma once

#include <string>
#include <vector>

#include "train/options.h"
#include "train/step.h"

namespace chiron {

/// One op of a dry run.
struct PlannedOp {
  Unit unit;  ///< -1: outside all units
  bool forward;
  std::string slot;  ///< whose equation it belongs to; empty: none
  bool kept, again;  ///< the slot is kept; the op runs once more in backward because it is not
  std::string name;
  std::vector<Operand> outputs, inputs;
  double flops;
};

/// What a step needs and does, found by running it dry. Bytes are per rank.
struct Plan {
  int64_t parameters = 0, trained_parameters = 0;
  int64_t tokens_per_step = 0;  ///< of all ranks and micro-batches
  double flops_per_token = 0;   ///< counted op by op: forward, backward, update
  double model_flops_per_token =
      0;  ///< 6 N + 12 L H D T, the usual formula (Chowdhery et al., "PaLM", 2022, appendix B)
  int64_t weights = 0, gradients = 0, optimizer = 0, activations = 0, temporary = 0, logits = 0;
  Stacks stacks = Stacks::dry();  ///< their peaks are what a run allocates
  std::vector<PlannedOp> ops;     ///< of one micro-batch and the update

  int64_t total() const { return weights + gradients + optimizer + activations + temporary + logits; }
};

/// Runs a step dry.
Plan make_plan(const Options& options, const Model& model);

/// The tables that `chiron plan` prints.
std::string plan_table(const Plan& plan, const Options& options, const Model& model);
std::string plan_ops_table(const Plan& plan);

}  // namespace chiron
