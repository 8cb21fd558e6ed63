// The plan lists the ops that a real step runs: the same ones, in the same order, on operands of the same sizes.

#include "support/tiny_run.h"
#include "train/plan.h"

namespace chiron::tests {
namespace {

std::string shown(const PlannedOp& op) {
  std::string out =
      fmt::format("{} {} {} {} {} {} {}:", op.unit, op.forward, op.slot, op.kept, op.again, op.name, op.flops);
  for (const auto* list : {&op.outputs, &op.inputs}) {
    for (const Operand& o : *list) out += fmt::format(" {}{}", name_of(o.dtype), o.shape.str());
    out += " /";
  }
  return out;
}

std::vector<std::string> shown(const std::vector<PlannedOp>& ops) {
  std::vector<std::string> out;
  for (const PlannedOp& op : ops) out.push_back(shown(op));
  return out;
}

TEST(PlanOps, AreThoseOfARealStep) {
  using Kind = Activations::Kind;
  for (Family family : {Family::gpt2, Family::llama})
    for (const Activations& a : {Activations{.kind = Kind::keep_all}, Activations{.kind = Kind::keep_none},
                                 Activations{.kind = Kind::every, .every = 2}})
      for (int64_t chunk : {0, 40}) {
        Options o = tiny_options(family);
        o.model.dropout = o.model.embedding_dropout = o.model.attention_dropout = o.model.residual_dropout = 0.1;
        o.training.gradient_accumulation = 1;
        o.training.use_amp = chunk > 0;
        o.training.loss_chunk = chunk;
        o.activations = a;
        TinyRun run(o);
        OpRecorder recorder;
        run.s.set_trace(&recorder);
        run.run(0);
        run.s.set_trace(nullptr);
        const Plan plan = make_plan(o, *run.model);
        EXPECT_EQ(shown(plan.ops), shown(recorder.ops)) << a.yaml();
        EXPECT_EQ(plan.stacks.saved_peak(), run.saved_bytes);
      }
}

}  // namespace
}  // namespace chiron::tests
