#include "ops/gemm/gemm_choices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/gpu_testing.h"
#include "ops/gemm/gemm_testing.h"

namespace chiron {
namespace {

using Sizes = ProductNumbers::Sizes;

/// The products of a layer: forward with a residual, both backward ones; each has edges that no tile divides.
struct Case {
  Sizes sizes;
  DType dtype, out;
};
const Case kCases[] = {
    {{136, 72, 200, Op::none, Op::transpose, true, Sizes::apart}, DType::bf16, DType::bf16},
    {{136, 72, 200, Op::none, Op::transpose, true, Sizes::same}, DType::f16, DType::f16},
    {{136, 200, 72, Op::none, Op::none}, DType::bf16, DType::bf16},
    {{72, 200, 136, Op::transpose, Op::none, false, Sizes::same}, DType::bf16, DType::f32},
    {{72, 200, 136, Op::transpose, Op::none, false, Sizes::same}, DType::f32, DType::f32},
    {{33, 17, 21, Op::none, Op::transpose, true}, DType::f32, DType::f32},
    {{33, 17, 21, Op::transpose, Op::transpose}, DType::f16, DType::f32},
};

/// Runs a case as an op would, with the choices; returns the bits of C.
std::vector<std::byte> run(Stream& s, const Case& c) {
  ProductNumbers numbers(s, c.sizes, c.dtype, c.out);
  const int64_t bytes = product_scratch_bytes(numbers.product());
  Stack temp(s.device(), bytes + Stack::kAlign);
  gpu::product(s, numbers.product(), push_product_scratch(s, numbers.product(), temp));
  EXPECT_LE(numbers.error(), product_tolerance(c.out)) << ProductKey(numbers.product(), false).text();
  return numbers.bits();
}

/// Tells the choices of all cases, as a plan's dry stream does.
void note_cases(GemmChoices& choices, Stream& s) {
  Stream dry = Stream::dry(kGpu);
  dry.set_gemm_choices(&choices);
  Stack temp = Stack::dry();
  for (const Case& c : kCases) {
    ProductNumbers numbers(s, c.sizes, c.dtype, c.out);
    push_product_scratch(dry, numbers.product(), temp);
  }
}

TEST(GpuGemmChoices, UntimedProductsAreRightAndRepeat) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  GemmChoices choices(kGpu);
  s.set_gemm_choices(&choices);
  for (const Case& c : kCases) EXPECT_EQ(run(s, c), run(s, c));
}

TEST(GpuGemmChoices, ACheckpointCarriesTheBits) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  GemmChoices tuned(kGpu);
  note_cases(tuned, s);
  const int timed = tuned.tune(s);
  EXPECT_EQ(timed, tuned.blaslt() ? static_cast<int>(std::size(kCases)) : 0) << tuned.library();
  EXPECT_EQ(tuned.tune(s), 0);
  s.set_gemm_choices(&tuned);
  std::vector<std::vector<std::byte>> before;
  for (const Case& c : kCases) before.push_back(run(s, c));

  GemmChoices resumed(kGpu);
  resumed.adopt(nlohmann::json::parse(tuned.to_json().dump()), "checkpoint");
  note_cases(resumed, s);
  EXPECT_EQ(resumed.tune(s), 0);
  s.set_gemm_choices(&resumed);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(run(s, kCases[i]), before[i]);
  EXPECT_EQ(resumed.to_json(), tuned.to_json());
}

TEST(GpuGemmChoices, AFileKeepsWhatItSaysOfOtherDevices) {
  if (auto why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  ThreadPool pool(1);
  Stream s(kGpu, pool);
  const std::string path = testing::TempDir() + "gemm_choices_test.json";
  std::filesystem::remove(path);
  GemmChoices choices(kGpu);
  choices.load(path);  // absent: empty
  const nlohmann::json other = {{"another GPU, another library", {{"M1 N1 K1", "own"}}}};
  std::ofstream(path) << other;
  choices.load(path);
  s.set_gemm_choices(&choices);
  run(s, kCases[0]);
  choices.save(path);
  const auto saved = nlohmann::json::parse(std::ifstream(path));
  EXPECT_EQ(saved.size(), 2u);
  EXPECT_EQ(saved["another GPU, another library"], other["another GPU, another library"]);
  GemmChoices again(kGpu);
  again.load(path);
  EXPECT_EQ(again.to_json(), choices.to_json());

  nlohmann::json broken = choices.to_json();
  for (auto& [machine, products] : broken.items())
    for (auto& [key, choice] : products.items()) choice = "fastest";
  EXPECT_THROW(again.adopt(broken, path), DataError);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace chiron
