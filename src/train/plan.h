#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "train/op_recorder.h"
#include "train/options.h"
#include "train/step.h"

namespace chiron {

/// What a step needs and does, found by running it dry. Bytes are per rank, of the device's memory.
struct Plan {
  int64_t parameters = 0, trained_parameters = 0;
  int64_t tokens_per_step = 0;  ///< of all ranks and micro-batches
  double flops_per_token = 0;   ///< of this rank, over the tokens of its batch: forward, backward, update, op by op
  /// 6 N + 12 L H D T, the usual formula (Chowdhery et al., "PaLM", 2022, appendix B)
  double model_flops_per_token = 0;
  StoreBytes state;
  int64_t activations = 0, temporary = 0, logits = 0;
  int64_t batches = 0;    ///< tokens, labels and so on, of the step that runs and the one that is prefetched
  int64_t snapshot = 0;   ///< of a save in the background; 0 on a GPU, for which it lies in the host's memory
  int64_t workspace = 0;  ///< what the CPU's library of products packs its operands into
  /// What the program takes, whatever the model, about. CPU: code of the ops and stacks of their threads, which an idle
  /// program has not touched. GPU: what driver, kernels and libraries take of its memory (measured on an H200).
  static constexpr int64_t kProgram = 2'000'000, kGpuProgram = 560'000'000;
  int64_t program = kProgram;
  Stacks stacks = Stacks::dry();  ///< their peaks are what a run allocates
  std::vector<PlannedOp> ops;     ///< of one micro-batch and the update; of several stages, of this one's whole step
  WorkByOp step;                  ///< this rank's step, summed up
  StepWork work;                  ///< of `work_micros` of its micro-batches: at most two on one stage
  int work_micros = 1;

  /// What a run asks for, and what the program has taken by then.
  int64_t asked() const { return state.total() + activations + temporary + logits + batches + snapshot + workspace; }
  int64_t total() const { return asked() + program; }
};

/// Runs a step dry, as this rank of the mesh would run it on the device; the model is as that rank has it.
/// On a GPU `choices` are told of its products.
Plan make_plan(const Options& options, const Model& model, Device device = {}, GemmChoices* choices = nullptr,
               const Mesh& mesh = Mesh::single());

/// The tables that `chiron plan` prints; `whose` memory it is.
std::string plan_table(const Plan& plan, const Options& options, const Model& model,
                       const std::string& whose = "each rank");
/// "embedding", "block 3", "head".
std::string unit_name(Unit u, const Model& model);
std::string plan_ops_table(const Plan& plan, const Options& options, const Model& model);

}  // namespace chiron
