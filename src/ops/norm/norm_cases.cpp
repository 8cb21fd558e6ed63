#include "ops/all_cases.h"
#include "ops/norm/norm.h"

namespace chiron {
namespace {

OpCase squared(std::vector<int64_t> sizes) {
  OpCase c{.op = "squared_norm", .name = fmt::format("{} shards, the first of {}", sizes.size(), sizes[0])};
  c.f32_only = true;
  c.args = {{"sum", Arg::accum, Arg::output, {1}, {}}};
  for (uint32_t i = 0; i < sizes.size(); ++i)
    c.args.push_back({fmt::format("grad {}", i), Arg::accum, Arg::input, {sizes[i]}, random_normal(sizes[i], i + 1)});
  c.run = [](Stream& s, const std::vector<Tensor>& a, Stack& temp) {
    Scope scope(temp);
    std::vector<Shard> shards;
    for (size_t i = 1; i < a.size(); ++i) shards.push_back({.master = a[i], .grad = a[i]});
    StepScalars* scalars = on_device(s, StepScalars{}, temp);
    squared_norm(s, scalars, make_shards(s, temp, shards), temp);
    if (!s.dry()) s.copy(a[0], View{reinterpret_cast<uintptr_t>(&scalars->sums[0]), DType::f32, {1}});
  };
  c.reference = [](Arrays& a) {
    double sum = 0;
    for (size_t i = 1; i < a.size(); ++i)
      for (double g : a[i]) sum += g * g;
    a[0][0] = sum;
  };
  return c;
}

}  // namespace

std::vector<OpCase> norm_cases(CaseUse use) {
  using namespace bench_size;
  constexpr int64_t kBlock = 12 * kWidth * kWidth;  // the weights of a block
  if (use == CaseUse::bench) return {squared({kBlock})};
  return {squared({1}), squared({33, 1, 832}), squared({16384, 40001, 5}), squared({3, 2 * 16384 + 7, 1})};
}

}  // namespace chiron
