#include "gpu/emulator.h"

#if !defined(__CUDACC__) && !defined(__HIP__)

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "base/error.h"
#include "gpu/gpu.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace chiron::gpu {
namespace emu {
namespace {

namespace context = boost::context;

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kRedZone = 64;
constexpr std::byte kRedByte{0xa5}, kPoison{0xff};

/// Thrown in the threads of a block that another thread has failed.
struct Abandoned {};

struct AsyncCopy {
  void* to;
  const void* from;
  int bytes;
};

struct Fiber {
  Thread where;
  enum State : uint8_t { ready, at_barrier, in_exchange, ended } state = ready;
  Site site;
  int exchanges = 0;
  std::vector<std::vector<AsyncCopy>> copies;  // groups under way; the last one is open
  size_t shared_taken = 0, next_array = 0;
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  context::fiber self, scheduler;
  void* fake_stack = nullptr;
};

/// Gives a fiber the memory that it keeps from block to block.
struct Borrowed {
  std::byte* memory;
  context::stack_context allocate() {
    context::stack_context c;
    c.size = kStackBytes;
    c.sp = memory + kStackBytes;
    return c;
  }
  void deallocate(context::stack_context&) {}
};

/// One array of shared memory, with its red zones: where it begins and how large it is.
struct Array {
  size_t begin, bytes;
};

#if defined(__SANITIZE_ADDRESS__)
/// Called when AddressSanitizer ends the program.
void say_where();
#endif

class Block {
 public:
  Block(const Launch& how, int lanes, const std::function<void()>& body)
      : how_(how),
        lanes_(lanes),
        body_(body),
        fibers_(static_cast<size_t>(how.threads)),
        values_(2 * static_cast<size_t>(how.threads) * kExchange) {
    // Red zones come on top of what the kernel may take; a thread cannot take more than kMaxArrays arrays.
    shared_.resize(static_cast<size_t>(how.shared) + (kMaxArrays + 1) * kRedZone);
#if defined(__SANITIZE_ADDRESS__)
    static const bool once = (__sanitizer_set_death_callback(say_where), true);
    static_cast<void>(once);
#endif
  }

  void run(int64_t block, int y, int z, std::mt19937& random) {
    arrays_.clear();
    error_ = nullptr;
    ready_.clear();
    allow(shared_.data(), shared_.size());
    std::fill(shared_.begin(), shared_.end(), kPoison);
    for (int t = 0; t < how_.threads; ++t) start(t, block, y, z);
    while (!ready_.empty()) {
      const size_t pick = random() % ready_.size();
      std::swap(ready_[pick], ready_.back());
      Fiber* next = ready_.back();
      ready_.pop_back();
      resume(*next);
      check_red_zones();
      if (error_) break;
      if (ready_.empty()) release_barrier();
    }
    if (!error_) explain_what_is_stuck();
    abandon();
    allow(shared_.data(), shared_.size());
    if (error_) std::rethrow_exception(error_);
  }

  Fiber& current() { return *current_; }
  int lanes() const { return lanes_; }

  void wait(Fiber::State state, const Site& site) {
    Fiber& f = *current_;
    f.state = state;
    f.site = site;
    suspend(f);
  }

  const std::byte* exchange(const void* value, size_t bytes, const Site& site) {
    if (bytes > kExchange) throw Bug("an exchange of {} bytes", bytes);
    Fiber& f = *current_;
    // Two sets of values: a lane cannot be more than one exchange ahead of another.
    std::byte* set = values_.data() + (f.exchanges++ % 2 ? values_.size() / 2 : 0);
    std::memcpy(set + static_cast<size_t>(f.where.thread) * kExchange, value, bytes);
    const size_t first = static_cast<size_t>(f.where.thread / lanes_ * lanes_);
    f.state = Fiber::in_exchange;
    f.site = site;
    if (!release_warp(first)) suspend(f);
    return set + first * kExchange;
  }

  std::byte* take_shared(size_t bytes) {
    Fiber& f = *current_;
    f.shared_taken += static_cast<size_t>(shared_bytes<std::byte>(static_cast<int64_t>(bytes)));
    if (f.shared_taken > static_cast<size_t>(how_.shared))
      fail(fmt::format("takes {} bytes of shared memory, but was launched with {}", f.shared_taken, how_.shared));
    if (f.next_array == arrays_.size()) {
      if (arrays_.size() == kMaxArrays) fail(fmt::format("takes more than {} shared arrays", kMaxArrays));
      const size_t begin = arrays_.empty() ? kRedZone : red_end(arrays_.back());
      if (arrays_.empty()) paint(0, kRedZone);
      arrays_.push_back({begin, bytes});
      paint(begin + bytes, red_end(arrays_.back()));
    }
    const Array& array = arrays_[f.next_array++];
    if (array.bytes != bytes) fail("threads cut shared memory in different ways");
    return shared_.data() + array.begin;
  }

  [[noreturn]] void fail(const std::string& what) { throw Bug("{}: {}", where(), what); }
  /// Where the thread that runs stands.
  std::string where() const {
    const Thread& t = current_->where;
    return fmt::format("kernel {}, block ({}, {}, {}), thread {}", how_.kernel, t.block, t.block_y, t.block_z,
                       t.thread);
  }

 private:
  static constexpr size_t kMaxArrays = 24;

  void start(int t, int64_t block, int y, int z) {
    Fiber& f = fibers_[static_cast<size_t>(t)];
    f.where = {t, how_.threads, lanes_, block, how_.blocks, y, z};
    f.state = Fiber::ready;
    f.exchanges = 0;
    f.copies.assign(1, {});
    f.shared_taken = f.next_array = 0;
    f.self = context::fiber(std::allocator_arg, Borrowed{f.stack.get()}, [this, &f](context::fiber&& scheduler) {
      f.scheduler = std::move(scheduler);
      entered(nullptr);
      try {
        if (abandoned_) throw Abandoned();  // before it began
        body_();
        for (const auto& group : f.copies)
          if (!group.empty()) fail("ends with copies to shared memory under way");
      } catch (const Abandoned&) {
      } catch (...) {
        if (!error_) error_ = std::current_exception();
      }
      f.state = Fiber::ended;
      void* none = nullptr;
      leaving(&none, true);
      return std::move(f.scheduler);
    });
    ready_.push_back(&f);
  }

#if defined(__SANITIZE_ADDRESS__)
  // AddressSanitizer is told of each change of stacks.
  void resume(Fiber& f) {
    current_ = &f;
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, f.stack.get(), kStackBytes);
    f.self = std::move(f.self).resume();
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  }
  void entered(void* fake) { __sanitizer_finish_switch_fiber(fake, &scheduler_stack_, &scheduler_bytes_); }
  void leaving(void** fake, bool for_ever) {
    __sanitizer_start_switch_fiber(for_ever ? nullptr : fake, scheduler_stack_, scheduler_bytes_);
  }
  static void allow(std::byte* p, size_t n) { __asan_unpoison_memory_region(p, n); }
  static void forbid(std::byte* p, size_t n) { __asan_poison_memory_region(p, n); }
#else
  void resume(Fiber& f) {
    current_ = &f;
    f.self = std::move(f.self).resume();
  }
  void entered(void*) {}
  void leaving(void**, bool) {}
  static void allow(std::byte*, size_t) {}
  static void forbid(std::byte*, size_t) {}
#endif

  void suspend(Fiber& f) {
    leaving(&f.fake_stack, false);
    f.scheduler = std::move(f.scheduler).resume();
    entered(f.fake_stack);
    if (abandoned_) throw Abandoned();
  }

  void make_ready(Fiber& f) {
    f.state = Fiber::ready;
    ready_.push_back(&f);
  }

  /// Lets a warp go on if all of its lanes have come to the same exchange; the running one is not made ready.
  bool release_warp(size_t first) {
    for (size_t i = first; i < first + static_cast<size_t>(lanes_); ++i)
      if (fibers_[i].state != Fiber::in_exchange) return false;
    for (size_t i = first; i < first + static_cast<size_t>(lanes_); ++i) {
      if (!same(fibers_[i].site, current_->site))
        fail(fmt::format("exchanges at {} while lane {} of its warp does at {}", text(current_->site),
                         fibers_[i].where.thread % lanes_, text(fibers_[i].site)));
      if (&fibers_[i] == current_)
        fibers_[i].state = Fiber::ready;
      else
        make_ready(fibers_[i]);
    }
    return true;
  }

  void release_barrier() {
    for (Fiber& f : fibers_)
      if (f.state != Fiber::at_barrier || !same(f.site, fibers_[0].site)) return;
    for (Fiber& f : fibers_) make_ready(f);
  }

  /// Nothing can run: either all threads have ended, or some wait for others that never come.
  void explain_what_is_stuck() {
    for (Fiber& f : fibers_) {
      if (f.state == Fiber::ended) continue;
      const Fiber* other = &f;
      for (Fiber& g : fibers_)
        if (g.state != f.state || !same(g.site, f.site)) other = &g;
      const char* how = other->state == Fiber::ended        ? "has ended"
                        : other->state == Fiber::at_barrier ? "waits at the barrier"
                                                            : "waits in the exchange";
      current_ = &f;
      note(fmt::format("divergent: waits {} at {}, but thread {} {}{}",
                       f.state == Fiber::at_barrier ? "at the barrier" : "in the exchange", text(f.site),
                       other->where.thread, how, other->state == Fiber::ended ? "" : " at " + text(other->site)));
      return;
    }
  }

  /// Ends all threads that have not ended.
  void abandon() {
    abandoned_ = true;
    for (Fiber& f : fibers_)
      if (f.state != Fiber::ended && f.self) resume(f);
    abandoned_ = false;
  }

  /// The kernel's error, unless it has one.
  void note(const std::string& what) {
    if (!error_) error_ = std::make_exception_ptr(Bug("{}: {}", where(), what));
  }

  static size_t red_end(const Array& a) { return (a.begin + a.bytes + 15) / 16 * 16 + kRedZone; }
  void paint(size_t begin, size_t end) {
    std::fill(shared_.data() + begin, shared_.data() + end, kRedByte);
    forbid(shared_.data() + begin, end - begin);
  }

  // Not instrumented: red zones are forbidden to everybody else.
  [[gnu::no_sanitize("address")]] static bool is_red(const std::byte* p, const std::byte* end) {
    for (; p < end; ++p)
      if (*p != kRedByte) return false;
    return true;
  }

  /// Whether the thread that ran last has written into one.
  void check_red_zones() {
    const std::byte* p = shared_.data();
    for (size_t i = 0; i < arrays_.size(); ++i)
      if (!is_red(p + arrays_[i].begin + arrays_[i].bytes, p + red_end(arrays_[i])) ||
          (i == 0 && !is_red(p, p + kRedZone)))
        return note(fmt::format("something was written before or behind shared array {}", i));
  }

  static bool same(const Site& a, const Site& b) {
    return a.line() == b.line() && a.column() == b.column() && std::string_view(a.file_name()) == b.file_name();
  }
  static std::string text(const Site& s) { return fmt::format("{}:{}", s.file_name(), s.line()); }

  const Launch& how_;
  int lanes_;
  const std::function<void()>& body_;
  std::vector<Fiber> fibers_;
  std::vector<Fiber*> ready_;
  std::vector<std::byte> values_, shared_;
  std::vector<Array> arrays_;
  std::exception_ptr error_;
  Fiber* current_ = nullptr;
  bool abandoned_ = false;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_bytes_ = 0;
};

/// The block that runs on this thread of the host.
thread_local Block* running = nullptr;

#if defined(__SANITIZE_ADDRESS__)
void say_where() {
  if (running) std::fprintf(stderr, "In %s\n", running->where().c_str());
}
#endif

}  // namespace

void run(const Launch& how, int lanes, const std::function<void()>& body) {
  CHECK(running == nullptr, "kernel {} was launched by a kernel", how.kernel);
  // Another order in each launch, the same in each run of the program.
  thread_local std::mt19937 random;
  struct Position {
    int64_t x;
    int y, z;
  };
  std::vector<Position> blocks;
  for (int z = 0; z < how.blocks_z; ++z)
    for (int y = 0; y < how.blocks_y; ++y)
      for (int64_t x = 0; x < how.blocks; ++x) blocks.push_back({x, y, z});
  std::shuffle(blocks.begin(), blocks.end(), random);
  Block block(how, lanes, body);
  running = &block;
  try {
    for (const Position& p : blocks) block.run(p.x, p.y, p.z, random);
  } catch (...) {
    running = nullptr;
    throw;
  }
  running = nullptr;
}

const Thread& self() { return running->current().where; }

void sync_block(const Site& site) { running->wait(Fiber::at_barrier, site); }

const std::byte* exchange(const void* value, size_t bytes, const Site& site) {
  return running->exchange(value, bytes, site);
}

std::byte* take_shared(size_t bytes) { return running->take_shared(bytes); }

// What is on its way arrives as late as it may, and until then the target is poisoned.
void copy_async(void* to, const void* from, int bytes) {
  if (bytes < 0 || bytes > 16 || reinterpret_cast<uintptr_t>(to) % 16 ||
      (bytes && reinterpret_cast<uintptr_t>(from) % 16))
    fail(fmt::format("copy_async of {} bytes from {} to {}", bytes, from, to));
  std::memset(to, 0xff, 16);
  running->current().copies.back().push_back({to, from, bytes});
}

void copy_async_commit() { running->current().copies.emplace_back(); }

void copy_async_wait(int pending) {
  auto& groups = running->current().copies;
  while (static_cast<int>(groups.size()) - 1 > pending) {
    for (const AsyncCopy& c : groups.front()) {
      std::memset(c.to, 0, 16);
      std::memcpy(c.to, c.from, static_cast<size_t>(c.bytes));
    }
    groups.erase(groups.begin());
  }
}

void fail(const std::string& what) { running->fail(what); }

}  // namespace emu

namespace vendor {

namespace {

/// What the made-up device's memory holds. Of the process, as the device is.
struct Memory {
  std::mutex mutex;
  std::map<void*, size_t> blocks;
  size_t used = 0;
};
Memory& device_memory() {
  static Memory m;
  return m;
}

}  // namespace

int free_memory(size_t* bytes) {
  std::lock_guard lock(device_memory().mutex);
  *bytes = static_cast<size_t>(kMemory) - device_memory().used;
  return 0;
}

int allocate(void** memory, size_t bytes) {
  constexpr size_t kAlign = 256;
  Memory& m = device_memory();
  std::lock_guard lock(m.mutex);
  if (bytes > static_cast<size_t>(kMemory) - m.used || posix_memalign(memory, kAlign, bytes)) return kOutOfMemory;
  m.blocks[*memory] = bytes;
  m.used += bytes;
  return 0;
}

int release(void* memory) {
  Memory& m = device_memory();
  std::lock_guard lock(m.mutex);
  if (auto block = m.blocks.find(memory); block != m.blocks.end()) {
    m.used -= block->second;
    m.blocks.erase(block);
  }
  std::free(memory);
  return 0;
}

}  // namespace vendor
}  // namespace chiron::gpu

#endif
