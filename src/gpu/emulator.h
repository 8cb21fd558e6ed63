#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

/// The emulator: runs the blocks of a kernel one after the other, in random order, each thread of a block on a fiber of
/// its own, in random order between the points where they meet. What a GPU leaves undefined or only makes slow is an
/// error here, which names kernel, block and thread: a barrier or an exchange that not all threads come to, shared
/// memory read or written outside its array or taken beyond what was asked for. Under AddressSanitizer the same holds
/// for global memory, since each allocation is one of the host's.
namespace chiron::gpu {
struct Launch;
}

namespace chiron::gpu::emu {

/// Runs `body` once for each thread of the grid. Bug if the kernel breaks a rule.
void run(const Launch& how, int lanes, const std::function<void()>& body);

/// Where the running thread stands.
struct Thread {
  int thread = 0, num_threads = 0, lanes = 0;
  int64_t block = 0, num_blocks = 0;
  int block_y = 0, block_z = 0;
};
const Thread& self();

using Site = std::source_location;

void sync_block(const Site& site);
/// Most bytes that a lane can give to exchange().
inline constexpr size_t kExchange = 128;
/// Waits for all lanes of the warp; returns their values, kExchange bytes apart, valid until the thread's next
/// exchange.
const std::byte* exchange(const void* value, size_t bytes, const Site& site);

/// The next array of the block's shared memory, of `bytes` and 16-byte aligned, between red zones.
std::byte* take_shared(size_t bytes);

void copy_async(void* to, const void* from, int bytes);
void copy_async_commit();
void copy_async_wait(int pending);

/// Ends the kernel with an error that says where it happened.
[[noreturn]] void fail(const std::string& what);

}  // namespace chiron::gpu::emu
