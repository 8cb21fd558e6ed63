#include "comm/tcp_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "comm/store_server.h"
#include "comm/tcp_socket.h"

namespace chiron {
namespace {

/// What the server finds late arrives before the client's own patience ends.
constexpr std::chrono::seconds kGrace{3};
/// How long whoever listens at a port may take to say what it is. A rank 0 that was slower is asked again.
constexpr std::chrono::seconds kFirstWord{2};
constexpr const char* kOtherJob = "rank 0 of another job is there";

}  // namespace

struct TcpStore::State {
  StoreOptions options;
  std::unique_ptr<StoreServer> server;  // of rank 0
  std::vector<std::string> members, notes;
  int port = 0;
  std::mutex mutex;  // of all below: failure() comes from any thread
  Socket socket;
  FrameReader reader;
  std::optional<std::string> failure;
  Verdict verdict{};
  bool told = false;  ///< of the failure, by rank 0
  bool closed = false, ended = false, left = false;

  std::string where(int at) const { return fmt::format("{}:{}", options.address, at); }
  std::string me() const { return fmt::format("rank {} ({})", options.rank, this_process(options.host)); }

  void take_failure(const Message& m) {
    failure = m.at(1);
    told = true;
    verdict = {std::atoi(m.at(2).c_str()) == options.rank, static_cast<ExitCode>(std::atoi(m.at(3).c_str()))};
  }
  /// Rank 0 is gone and its store with it.
  void lose_first(const std::string& why) {
    failure = why;
    verdict = {options.rank <= 1, ExitCode::comm};
  }
  template <class E>
  [[noreturn]] void tell(const std::string& why) const {
    if (options.rank == 0) throw E("{}", why);
    throw Told<E>("{}", why);
  }

  /// The next answer. Throws what ends the job; CommError with `late` at the deadline.
  Message answer(Clock::time_point deadline, const std::string& late) {
    for (;;) {
      if (failure) throw CommError("{}", *failure);
      if (auto m = reader.next()) {
        const std::string& kind = m->at(0);
        if (kind == "failed") {
          take_failure(*m);
        } else if (kind == "end") {
          ended = true;
        } else if (kind == "late") {
          throw CommError("{}", m->at(1));
        } else {
          return *m;
        }
      } else if (ended) {
        throw CommError("{} asks rank 0 ({}), which is done already", me(), members.empty() ? "" : members[0]);
      } else if (closed) {
        lose_first(members.empty() ? fmt::format("rank 0 at {} has ended before all met", where(port))
                                   : ended_text(0, members[0]));
      } else if (!wait_for(socket, false, deadline)) {
        throw CommError("{}", late);
      } else {
        closed = !reader.fill(socket);
      }
    }
  }

  Message ask(const Message& question, std::chrono::milliseconds time) {
    const std::lock_guard lock(mutex);
    if (failure) throw CommError("{}", *failure);
    CHECK(!left, "a store that was left");
    const auto deadline = Clock::now() + time + kGrace;
    write_all(socket, frame_of(question), deadline);
    return answer(deadline, fmt::format("{} had no answer of rank 0 ({}) for {} ms", me(), members[0], time.count()));
  }

  /// Connects to a port and says hello. False if no rank 0 of this job is there, with the reason in `why`.
  bool greet(int at, Clock::time_point deadline, std::string& why) {
    socket = connect_to(options.address, at, deadline, why);
    if (!socket.open()) return false;
    reader = {};
    closed = false;
    Message hello{"hello",
                  kStoreMagic,
                  kStoreVersion,
                  options.job,
                  std::to_string(options.rank),
                  std::to_string(options.world),
                  this_process(options.host),
                  options.note};
    for (const auto& [name, value] : options.identity) {
      hello.push_back(name);
      hello.push_back(value);
    }
    why = "no answer as a rank 0 gives it";
    if (!write_all(socket, frame_of(hello), deadline)) return false;
    const std::optional<Message> m = first_answer(std::min(deadline, Clock::now() + kFirstWord));
    if (!m) return false;
    port = at;
    if (m->at(0) == "failed") tell<CommError>(m->at(1));
    if (m->at(0) == "other job") why = kOtherJob;
    return m->at(0) == "welcome";
  }

  /// None if whoever listens there says nothing, or nothing of ours.
  std::optional<Message> first_answer(Clock::time_point deadline) {
    try {
      for (bool open = true;;) {
        if (auto m = reader.next(); m && !m->empty()) return m;
        if (!open || !wait_for(socket, false, deadline)) return std::nullopt;
        open = reader.fill(socket);
      }
    } catch (const CommError&) {
      return std::nullopt;
    }
  }

  void listen(Clock::time_point deadline) {
    std::string taken;
    for (int k = 0; k < options.num_ports; ++k) {
      const int at = options.port + k;
      if (auto listener = listen_at(options.address, at)) {
        options.port = port_of(*listener);
        options.num_ports = 1;
        server = std::make_unique<StoreServer>(std::move(*listener), options);
        return;
      }
      // Is it another process that says it is rank 0? Then its server refuses this one by name.
      std::string why;
      if (greet(at, deadline, why)) answer(deadline + kGrace, "two processes say that they are rank 0");
      taken += fmt::format("{}{} ({})", k == 0 ? "" : ", ", at, why);
    }
    throw CommError("{} cannot listen for the other ranks at {}: in use is {}; choose another by CHIRON_RDZV=host:port",
                    me(), options.address, taken);
  }

  void meet() {
    const auto deadline = Clock::now() + options.timeout;
    if (options.rank == 0) listen(deadline);
    std::string why = "no answer";
    for (bool there = false; !there;) {
      for (int k = 0; k < options.num_ports && !there; ++k) {
        std::string reason;
        there = greet(options.port + k, deadline, reason);
        if (why != kOtherJob) why = reason;
      }
      if (there) break;
      if (Clock::now() >= deadline)
        throw CommError("{} found no rank 0 at {} within {:.3g} s: {}", me(), where(options.port),
                        std::chrono::duration<double>(options.timeout).count(), why);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    Message met;
    try {
      met = answer(deadline + kGrace, fmt::format("{} waits at {} for all ranks to come", me(), where(port)));
    } catch (const CommError& e) {
      if (!told) throw;
      tell<CommError>(e.what());
    }
    if (met.at(0) == "differ") tell<ConfigError>("ranks of one run must be alike: " + met.at(1));
    for (size_t i = 1; i + 1 < met.size(); i += 2) {
      members.push_back(met[i]);
      notes.push_back(met[i + 1]);
    }
  }
};

TcpStore::TcpStore(const StoreOptions& options) : state_(std::make_unique<State>()) {
  CHECK(options.world >= 1 && options.rank >= 0 && options.rank < options.world && options.num_ports >= 1);
  state_->options = options;
  state_->meet();
}

TcpStore::~TcpStore() = default;

void TcpStore::set(const std::string& key, const std::string& value) {
  state_->ask({"set", key, value}, state_->options.timeout);
}

std::string TcpStore::get(const std::string& key) {
  const auto time = state_->options.timeout;
  return state_->ask({"get", key, std::to_string(time.count())}, time).at(1);
}

void TcpStore::wait(const std::string& key) { get(key); }

int64_t TcpStore::add(const std::string& key, int64_t n) {
  return std::atoll(state_->ask({"add", key, std::to_string(n)}, state_->options.timeout).at(1).c_str());
}

void TcpStore::barrier(const std::string& name) {
  const auto time = state_->options.timeout;
  state_->ask({"barrier", name, std::to_string(time.count())}, time);
}

TcpStore::Verdict TcpStore::fail(const std::string& why, ExitCode code) {
  const std::lock_guard lock(state_->mutex);
  if (state_->left) return {true, code};
  if (state_->failure) return state_->verdict;
  const auto soon = Clock::now() + std::chrono::seconds(1);
  write_all(state_->socket, frame_of({"fail", why, std::to_string(static_cast<int>(code))}), soon);
  try {
    state_->answer(soon, why);  // what all are told comes back to this rank too
  } catch (const CommError& e) {
    if (!state_->failure) state_->lose_first(e.what());
  }
  return state_->verdict;
}

std::optional<std::string> TcpStore::failure() {
  State& s = *state_;
  const std::unique_lock lock(s.mutex, std::try_to_lock);
  if (!lock.owns_lock() || s.left) return std::nullopt;
  if (s.failure || s.ended) return s.failure;
  s.closed = s.closed || !s.reader.fill(s.socket);
  while (auto m = s.reader.next()) {
    if (m->at(0) == "failed") s.take_failure(*m);
    if (m->at(0) == "end") s.ended = true;
  }
  if (s.closed && !s.failure && !s.ended) s.lose_first(ended_text(0, s.members[0]));
  return s.failure;
}

void TcpStore::leave() {
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->left, true)) return;
  write_all(state_->socket, frame_of({"bye"}), Clock::now() + std::chrono::seconds(1));
  if (state_->server) state_->server->leave();
}

int TcpStore::port() const { return state_->port; }
const std::vector<std::string>& TcpStore::members() const { return state_->members; }
const std::vector<std::string>& TcpStore::notes() const { return state_->notes; }

}  // namespace chiron
