// A step takes no memory from the heap: every byte was planned.

#include <atomic>
#include <cstdlib>
#include <new>

#include "comm/thread_ranks.h"
#include "data/prefetcher.h"
#include "support/sanitized.h"
#include "support/tiny_run.h"

namespace {

std::atomic<int64_t> allocations{0};

[[maybe_unused]] void* allocate(size_t bytes, size_t align) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

// Sanitizers bring their own, which must meet only each other.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// All of this program's, so that they can be counted. The forms for arrays, and those that do not throw, call these.
void* operator new(size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t align) { return allocate(bytes, static_cast<size_t>(align)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
#endif

namespace chiron::tests {
namespace {

template <class F>
void expect_no_allocation(const std::string& what, F&& f) {
  const int64_t before = allocations.load();
  f();
  EXPECT_EQ(allocations.load() - before, 0) << what;
}

TEST(Allocation, IsCounted) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  const int64_t before = allocations.load();
  auto p = std::make_unique<int64_t>(1);
  auto many = std::make_unique<int64_t[]>(1000);
  EXPECT_EQ(allocations.load() - before, 2);
}

TEST(Allocation, NoneInAStep) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  using Kind = Activations::Kind;
  for (Family family : {Family::gpt2, Family::llama})
    for (double dropout : {0.0, 0.1})
      for (bool amp : {false, true})
        for (const Activations& a : {Activations{.kind = Kind::keep_all}, Activations{.kind = Kind::keep_none},
                                     Activations{.kind = Kind::keep, .slots = {"qkv", "att"}}})
          for (bool deferred : {false, true}) {
            Options o = tiny_options(family);
            o.model.dropout = o.model.embedding_dropout = o.model.attention_dropout = o.model.residual_dropout =
                dropout;
            o.training.use_amp = amp;
            o.training.loss_chunk = amp ? 50 : 0;
            o.data.document_mask = amp;
            o.activations = a;
            TinyRun run(o, 2, deferred);
            for (int64_t n = 0; n < 2; ++n) {
              run.run(n);
              run.loader.fill(n, run.host);
            }
            const auto batches = run.batches.upload(run.s, run.host.micros);
            const std::string what =
                fmt::format("{} dropout {} amp {} {} deferred {}", names_of(family)[static_cast<size_t>(family)],
                            dropout, amp, a.yaml(), deferred);
            expect_no_allocation(what, [&] { run.step->run(run.s, batches); });
            expect_no_allocation(what + ", evaluation", [&] { run.step->evaluate(run.s, batches[0]); });
          }
}

TEST(Allocation, NoneInAStepOfSeveralRanks) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  for (const bool amp : {false, true})
    for (const int zero : {0, 1, 2, 3})
      run_thread_ranks(2, [&](Communicator& world) {
        Options o = tiny_options(Family::gpt2);
        o.training.use_amp = amp;
        o.parallel.zero = zero;
        TinyRun run(o, 1, false, {}, &world);
        for (int64_t n = 0; n < 2; ++n) run.run(n);
        run.loader.fill(2, run.host);
        const auto batches = run.batches.upload(run.s, run.host.micros);
        world.barrier(run.s);
        const int64_t before = allocations.load();
        world.barrier(run.s);
        run.step->run(run.s, batches);
        world.barrier(run.s);
        const int64_t after = allocations.load();
        world.barrier(run.s);
        EXPECT_EQ(after - before, 0) << "zero " << zero << " amp " << amp;
      });
}

TEST(Allocation, NoneInTheLoader) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  for (bool mask : {false, true})
    for (int64_t context_ranks : {1, 2}) {
      Loader loader(std::make_shared<SyntheticSource>(SyntheticOptions{.vocab_size = 300}),
                    {.sequences = 3, .length = 40, .micros = 2, .context_ranks = context_ranks, .document_mask = mask});
      HostStep host;
      loader.fill(0, host);
      expect_no_allocation(mask ? "with documents" : "plain", [&] {
        for (int64_t n = 1; n < 20; ++n) loader.fill(n, host);
      });
    }
}

TEST(Allocation, NoneInThePrefetcher) {
  if (kSanitized) GTEST_SKIP() << kWhySkipped;
  Loader loader(std::make_shared<SyntheticSource>(SyntheticOptions{.vocab_size = 300}), {.sequences = 3, .length = 40});
  Prefetcher prefetcher(loader);
  for (int64_t n = 0; n < 3; ++n) prefetcher.at(n);
  const int64_t before = allocations.load();
  for (int64_t n = 3; n < 20; ++n) prefetcher.at(n);
  EXPECT_EQ(allocations.load() - before, 0);
}

}  // namespace
}  // namespace chiron::tests
