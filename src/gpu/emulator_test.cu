// Kernels that break a rule, each of which the emulator must name with block and thread.

#include "gpu/emulator.h"

#if !defined(__CUDACC__) && !defined(__HIP__)

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "gpu/kernel_testing.h"

namespace chiron::gpu {
namespace {

constexpr int kThreads = 128;

/// What the emulator says of a kernel that is launched as a grid of 2 x 3 x 1 blocks.
template <class... P, class... A>
std::string failure_of(const char* name, int64_t shared, void (*kernel)(P...), A... arguments) {
  try {
    run_kernel({.kernel = name, .blocks = 2, .threads = kThreads, .shared = shared, .blocks_y = 3}, kernel,
               arguments...);
  } catch (const Bug& e) {
    return e.what();
  }
  return "nothing was found";
}

void expect_parts(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

/// Whether this is the block that misbehaves.
bool guilty() { return block() == 1 && block_y() == 2; }
const std::string kBlock = "block (1, 2, 0)";

__global__ void __launch_bounds__(kThreads) barrier_for_some() {
  if (!guilty() || thread() < 100) sync_block();
}

__global__ void __launch_bounds__(kThreads) barriers_at_two_places() {
  if (!guilty() || thread() % 2 == 0)
    sync_block();
  else
    sync_block();
}

__global__ void __launch_bounds__(kThreads) exchange_without_a_lane() {
  const bool misses = guilty() && thread() == kLanes + 3;
  for (int i = 0; i < 3; ++i)
    if (!misses || i != 1) shuffle_xor(thread(), 1);
}

__global__ void __launch_bounds__(kThreads) exchanges_at_two_places() {
  if (!guilty() || lane() % 2 == 0)
    shuffle(thread(), 0);
  else
    shuffle(thread(), 0);
}

__global__ void __launch_bounds__(kThreads) exchange_against_barrier() {
  if (guilty() && thread() == 5) sync_block();
  sync_warp();
  if (!guilty() || thread() != 5) sync_block();
}

__global__ void __launch_bounds__(kThreads) shuffle_from_nowhere() {
  shuffle(1.0f, guilty() && thread() == 9 ? kLanes : 0);
}

__global__ void __launch_bounds__(kThreads) shared_out_of_range(int index) {
  SharedMemory memory;
  Shared<float> first = memory.take<float>(10), second = memory.take<float>(10);
  if (thread() == 0) first[0] = second[0] = 0;
  if (guilty() && thread() == 77) (second + 4)[index] = 1;
}

__global__ void __launch_bounds__(kThreads) shared_taken_beyond() {
  SharedMemory memory;
  memory.take<float>(16);
  if (guilty() && thread() == 31) memory.take<char>(1);
}

__global__ void __launch_bounds__(kThreads) shared_cut_in_two_ways() {
  SharedMemory memory;
  memory.take<float>(guilty() && thread() == 8 ? 3 : 4);
}

__global__ void __launch_bounds__(kThreads) write_past_an_array(int index) {
  SharedMemory memory;
  float* p = memory.take<float>(9).data();
  if (guilty() && thread() == 42) p[index] = 1;
  sync_block();
}

__global__ void __launch_bounds__(kThreads) copy_that_nobody_awaits(const float* from) {
  SharedMemory memory;
  Shared<float> to = memory.take<float>(4);
  if (guilty() && thread() == 63) {
    copy_async(to, from);
    copy_async_commit();
    copy_async_wait<1>();
  }
}

__global__ void __launch_bounds__(kThreads) copy_past_an_array(const float* from) {
  SharedMemory memory;
  Shared<float> to = memory.take<float>(7);
  if (guilty() && thread() == 1) copy_async(to + 4, from);
}

__global__ void __launch_bounds__(kThreads) load_that_is_not_aligned(const float* from) {
  if (guilty() && thread() == 2) load16(from + 1);
}

TEST(GpuEmulator, NamesABarrierThatNotAllComeTo) {
  const std::string text = failure_of("barrier_for_some", 0, barrier_for_some);
  expect_parts(text, {"kernel barrier_for_some, " + kBlock + ", thread ", "divergent: waits at the barrier",
                      "emulator_test.cu:", "has ended"});
}

TEST(GpuEmulator, NamesTwoBarriersForOneBlock) {
  const std::string text = failure_of("barriers_at_two_places", 0, barriers_at_two_places);
  expect_parts(text, {"kernel barriers_at_two_places, " + kBlock + ", thread 0: divergent: waits at the barrier at ",
                      "but thread 127 waits at the barrier at "});
}

TEST(GpuEmulator, NamesAnExchangeThatALaneMisses) {
  const std::string text = failure_of("exchange_without_a_lane", 0, exchange_without_a_lane);
  expect_parts(text, {"kernel exchange_without_a_lane, " + kBlock + ", thread " + std::to_string(kLanes) +
                          ": divergent: waits in the exchange",
                      "has ended"});
}

TEST(GpuEmulator, NamesTwoExchangesForOneWarp) {
  const std::string text = failure_of("exchanges_at_two_places", 0, exchanges_at_two_places);
  expect_parts(text, {"kernel exchanges_at_two_places, " + kBlock + ", thread ", "exchanges at ", " while lane "});
  expect_parts(failure_of("exchange_against_barrier", 0, exchange_against_barrier),
               {"kernel exchange_against_barrier, " + kBlock + ", thread 0: divergent: waits in the exchange at "});
  expect_parts(failure_of("shuffle_from_nowhere", 0, shuffle_from_nowhere),
               {"kernel shuffle_from_nowhere, " + kBlock + ", thread 9: shuffle from lane " + std::to_string(kLanes)});
}

TEST(GpuEmulator, NamesSharedMemoryOutOfRange) {
  for (int index : {6, -5}) {
    const std::string text = failure_of("shared_out_of_range", 2 * shared_bytes<float>(10), shared_out_of_range, index);
    expect_parts(text, {"kernel shared_out_of_range, " + kBlock + ", thread 77: element " + std::to_string(index + 4) +
                        " of a shared array of 10"});
  }
}

TEST(GpuEmulator, NamesSharedMemoryBeyondWhatWasAskedFor) {
  expect_parts(failure_of("shared_taken_beyond", 64, shared_taken_beyond),
               {"kernel shared_taken_beyond, " + kBlock +
                ", thread 31: takes 80 bytes of shared memory, but was "
                "launched with 64"});
  expect_parts(
      failure_of("shared_cut_in_two_ways", 16, shared_cut_in_two_ways),
      {"kernel shared_cut_in_two_ways, " + kBlock + ", thread ", "threads cut shared memory in different ways"});
}

// 9 floats end within a piece of 16 bytes: the red zone begins right behind them.
TEST(GpuEmulator, NamesAWriteIntoARedZone) {
  for (int index : {9, -1}) {
    auto run = [&] {
      const std::string text = failure_of("write_past_an_array", 48, write_past_an_array, index);
      expect_parts(text, {"kernel write_past_an_array, " + kBlock + ", thread 42: something was written"});
    };
#if defined(__SANITIZE_ADDRESS__)
    // AddressSanitizer ends the program at the access itself.
    EXPECT_DEATH(run(), "kernel write_past_an_array, block \\(1, 2, 0\\), thread 42");
#else
    run();
#endif
  }
}

TEST(GpuEmulator, NamesCopiesThatNobodyAwaits) {
  DeviceArray<float> from{std::vector<float>(8, 1.0f)};
  expect_parts(
      failure_of("copy_that_nobody_awaits", 16, copy_that_nobody_awaits, from.data()),
      {"kernel copy_that_nobody_awaits, " + kBlock + ", thread 63: ends with copies to shared memory under way"});
  expect_parts(failure_of("copy_past_an_array", 32, copy_past_an_array, from.data()),
               {"kernel copy_past_an_array, " + kBlock + ", thread 1: copy_async beyond the end of a shared array"});
  expect_parts(
      failure_of("load_that_is_not_aligned", 0, load_that_is_not_aligned, from.data()),
      {"kernel load_that_is_not_aligned, " + kBlock + ", thread 2: load16 from an address that is not aligned"});
}

TEST(GpuEmulator, GoesOnAfterAFailure) {
  for (int i = 0; i < 2; ++i) {
    expect_parts(failure_of("barrier_for_some", 0, barrier_for_some), {kBlock});
    EXPECT_EQ(failure_of("shared_taken_beyond", 128, shared_taken_beyond), "nothing was found");
  }
}

/// order[n] = the thread that came n-th to its barrier, and once more behind it.
__global__ void __launch_bounds__(kThreads) write_order(int32_t* order, int32_t* count) {
  const auto self = static_cast<int32_t>(block() * num_threads() + thread());
  order[atomic_add(count, 1)] = self;
  sync_block();
  order[atomic_add(count, 1)] = self;
}

TEST(GpuEmulator, RunsBlocksAndThreadsInRandomOrder) {
  constexpr int kBlocks = 5;
  std::vector<std::vector<int32_t>> runs;
  for (int i = 0; i < 2; ++i) {
    DeviceArray<int32_t> order{std::vector<int32_t>(2 * kBlocks * kThreads)}, count{std::vector<int32_t>{0}};
    run_kernel({.kernel = "write_order", .blocks = kBlocks, .threads = kThreads}, write_order, order.data(),
               count.data());
    runs.push_back(order.read());
  }
  EXPECT_NE(runs[0], runs[1]);
  for (const auto& order : runs) {
    std::vector<int32_t> blocks;
    for (size_t at = 0; at < order.size(); at += 2 * kThreads) {
      // A block runs to its end before the next; all of its threads come to the barrier before one goes on.
      const int32_t b = order[at] / kThreads;
      blocks.push_back(b);
      std::vector<int32_t> before(order.begin() + static_cast<ptrdiff_t>(at),
                                  order.begin() + static_cast<ptrdiff_t>(at) + kThreads);
      std::vector<int32_t> after(order.begin() + static_cast<ptrdiff_t>(at) + kThreads,
                                 order.begin() + static_cast<ptrdiff_t>(at) + 2 * kThreads);
      EXPECT_NE(before, after);
      EXPECT_FALSE(std::ranges::is_sorted(before));
      EXPECT_FALSE(std::ranges::is_sorted(after));
      std::vector<int32_t> all(kThreads);
      std::iota(all.begin(), all.end(), b * kThreads);
      EXPECT_TRUE(std::ranges::is_permutation(before, all));
      EXPECT_TRUE(std::ranges::is_permutation(after, all));
    }
    std::ranges::sort(blocks);
    EXPECT_EQ(std::ranges::unique(blocks).begin(), blocks.end());
  }
  auto sorted_by_block = [](const std::vector<int32_t>& order) {
    return std::ranges::is_sorted(order, {}, [](int32_t i) { return i / kThreads; });
  };
  EXPECT_FALSE(sorted_by_block(runs[0]) && sorted_by_block(runs[1]));
}

/// What shared memory holds before anybody wrote to it.
__global__ void __launch_bounds__(64) read_unwritten(float* to) {
  SharedMemory memory;
  Shared<float> a = memory.take<float>(64);
  to[thread()] = a[thread()];
  a[thread()] = 1;
}

TEST(GpuEmulator, SharedMemoryStartsAsNaN) {
  DeviceArray<float> to{std::vector<float>(64)};
  run_kernel({.kernel = "read_unwritten", .blocks = 3, .threads = 64, .shared = 256}, read_unwritten, to.data());
  for (float x : to.read()) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace chiron::gpu

#endif
