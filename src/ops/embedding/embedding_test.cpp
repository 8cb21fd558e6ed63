#include "ops/embedding/embedding.h"

#include <vector>

#include "ops/op_case_test.h"

namespace chiron {
namespace {

TEST(Embedding, Cases) { expect_cases(embedding_cases()); }

TEST(Embedding, BitsDoNotDependOnThreads) { expect_same_bits_for_any_threads(embedding_cases()); }

template <class T>
Tensor tensor_of(std::vector<T>& v, Shape shape) {
  return {reinterpret_cast<uintptr_t>(v.data()), dtype_of<T>(), shape};
}

TEST(Embedding, NoTokens) {
  ThreadPool pool(2);
  Stream s({}, pool);
  std::vector<float> y, w(6, 1), dw(6, 7);
  std::vector<int32_t> ids;
  embedding(s, tensor_of(y, {0, 3}), Accum::overwrite, tensor_of(ids, {0}), tensor_of(w, {2, 3}), 0);
  Ids none{tensor_of(ids, {0}), tensor_of(ids, {0})};
  Stack temp({}, 0);
  embedding_backward(s, tensor_of(dw, {2, 3}), Accum::add, tensor_of(y, {0, 3}), none, 0, temp);
  EXPECT_EQ(dw, std::vector<float>(6, 7));
  embedding_backward(s, tensor_of(dw, {2, 3}), Accum::overwrite, tensor_of(y, {0, 3}), none, 0, temp);
  EXPECT_EQ(dw, std::vector<float>(6, 0));
}

TEST(Embedding, SumsInTheOrderOfPositions) {
  ThreadPool pool(2);
  Stream s({}, pool);
  // Only from left to right is the sum 1: (1e8 + 1) - 1e8 would be 0.
  std::vector<float> dy = {1e8f, -1e8f, 1}, dw = {0};
  std::vector<int32_t> ids = {0, 0, 0}, order = {0, 1, 2};
  Stack temp({}, 0);
  embedding_backward(s, tensor_of(dw, {1, 1}), Accum::overwrite, tensor_of(dy, {3, 1}),
                     {tensor_of(ids, {3}), tensor_of(order, {3})}, 0, temp);
  EXPECT_EQ(dw[0], 1);
}

TEST(Embedding, RefusesOtherSizes) {
  ThreadPool pool(1);
  Stream s({}, pool);
  std::vector<float> y(6), w(6);
  std::vector<int32_t> ids(3);
  EXPECT_THROW(embedding(s, tensor_of(y, {2, 3}), Accum::overwrite, tensor_of(ids, {3}), tensor_of(w, {2, 3}), 0), Bug);
  std::vector<bf16> narrow(9);
  EXPECT_THROW(embedding(s, tensor_of(narrow, {3, 3}), Accum::overwrite, tensor_of(ids, {3}), tensor_of(w, {2, 3}), 0),
               Bug);
}

}  // namespace
}  // namespace chiron
