#include "comm/peers.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>

namespace chiron {
namespace {

/// Where nothing goes through scratch memory, rounds are cut only because a message's size is an int.
constexpr int64_t kMostBytes = int64_t{1} << 30;

/// s absent: on this thread alone.
void copy_bytes(Stream* s, std::byte* to, const std::byte* from, int64_t bytes) {
  if (to == from || bytes <= 0) return;
  constexpr int64_t kGrain = 1 << 20;
  auto part = [=](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  };
  if (s)
    s->parallel(bytes, kGrain, part);
  else
    part(0, bytes);
}

/// to[i] <- terms[0][i] op terms[1][i] op ...: blocks of elements at a time, so that each array is read in runs.
template <class T>
void combine(Stream& s, T* to, std::span<const std::byte* const> terms, int64_t n, Reduce how) {
  using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, Acc<T>>;
  constexpr int64_t kGrain = 1 << 15, kBlock = 512;
  s.parallel(n, kGrain, [=](int64_t begin, int64_t end) {
    Sum sum[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      const T* first = reinterpret_cast<const T*>(terms[0]) + at;
      for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<Sum>(first[i]);
      for (size_t k = 1; k < terms.size(); ++k) {
        const T* term = reinterpret_cast<const T*>(terms[k]) + at;
        if (how == Reduce::max)
          for (int64_t i = 0; i < count; ++i) {
            const Sum x = static_cast<Sum>(term[i]);
            sum[i] = sum[i] > x || sum[i] != sum[i] ? sum[i] : x;  // a NaN stays, and one that comes is taken
          }
        else
          for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<Sum>(term[i]);
      }
      if (how == Reduce::average) {
        const Sum ranks = static_cast<Sum>(terms.size());
        for (int64_t i = 0; i < count; ++i) sum[i] /= ranks;
      }
      for (int64_t i = 0; i < count; ++i) to[at + i] = static_cast<T>(sum[i]);
    }
  });
}

void combine(Stream& s, DType dtype, std::byte* to, std::span<const std::byte* const> terms, int64_t n, Reduce how) {
  auto as = [&]<class T>() { combine(s, reinterpret_cast<T*>(to), terms, n, how); };
  switch (dtype) {
    case DType::i32:
      return as.template operator()<int32_t>();
    case DType::i64:
      return as.template operator()<int64_t>();
    case DType::u8:
      return as.template operator()<uint8_t>();
    default:
      return by_float(dtype, as);
  }
}

}  // namespace

PeerCommunicator::PeerCommunicator(std::unique_ptr<Transport> transport, std::shared_ptr<RankState> state, int size,
                                   int rank, int group, std::string name, int64_t piece_bytes)
    : Communicator(size, rank, std::move(name)),
      transport_(std::move(transport)),
      state_(std::move(state)),
      group_(group),
      piece_bytes_(piece_bytes),
      sent_(static_cast<size_t>(size)),
      taken_(static_cast<size_t>(size)),
      out_(static_cast<size_t>(size)),
      in_(static_cast<size_t>(size)),
      terms_(static_cast<size_t>(size)) {
  state_->name_group(group, this->name());
}

PeerCommunicator::~PeerCommunicator() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    transport_->wait_sent(last_ticket_);
  } catch (const CommError&) {
    // The rank that was to take the message says why it did not, or whoever waits for it.
  }
}

void PeerCommunicator::begin(CommCall& call) {
  call.group = group_;
  state_->begin(call);
  first_ = true;
}

void PeerCommunicator::clear() {
  std::ranges::fill(out_, Stretch{});
  std::ranges::fill(in_, Stretch{});
}

void PeerCommunicator::exchange(const CommCall& call) {
  transport_->exchange(call, std::exchange(first_, false), out_, in_);
  for (int k = 0; k < size(); ++k)
    if (k != rank()) state_->received += std::max<int64_t>(0, in_[static_cast<size_t>(k)].bytes);
}

/// in_ holds a piece of each rank: adds them up.
void PeerCommunicator::sum_round(Stream& s, const CommCall& call, std::byte* to, const std::byte* own, int64_t bytes) {
  for (int k = 0; k < size(); ++k) terms_[static_cast<size_t>(k)] = k == rank() ? own : in_[static_cast<size_t>(k)].at;
  combine(s, call.dtype, to, terms_, bytes / size_of(call.dtype), call.reduce);
}

/// `to` <- the reduction of this rank's run of every rank's `from`; to may be that run.
void PeerCommunicator::reduce_runs(Stream& s, const CommCall& call, std::byte* to, const std::byte* from, Cut cut) {
  const int64_t size_of_one = size_of(call.dtype);
  const int64_t piece = piece_bytes_ > 0 ? std::max<int64_t>(1, piece_bytes_ / size_of_one) : kMostBytes / size_of_one;
  for (int64_t at = 0; at < cut.each; at += piece) {
    auto bytes = [&](int k) { return std::clamp<int64_t>(cut.count(k) - at, 0, piece) * size_of_one; };
    auto source = [&](int k) { return from + (cut.begin(k) + at) * size_of_one; };
    clear();
    for (int k = 0; k < size(); ++k) {
      out_[static_cast<size_t>(k)] = {const_cast<std::byte*>(source(k)), bytes(k)};
      in_[static_cast<size_t>(k)] = {state_->scratch().data() + (state_->scratch().empty() ? 0 : k * piece_bytes_),
                                     bytes(rank())};
    }
    exchange(call);
    sum_round(s, call, to + at * size_of_one, source(rank()), bytes(rank()));
    transport_->finish(call);
  }
}

/// On root: t <- the reduction of every rank's t.
void PeerCommunicator::reduce_to_root(Stream& s, const CommCall& call, std::byte* t) {
  const int64_t all = call.elements * size_of(call.dtype), piece = piece_bytes_ > 0 ? piece_bytes_ : kMostBytes;
  for (int64_t at = 0; at < all; at += piece) {
    const int64_t bytes = std::min(piece, all - at);
    clear();
    if (rank() == call.peer)
      for (int k = 0; k < size(); ++k)
        in_[static_cast<size_t>(k)] = {state_->scratch().data() + (state_->scratch().empty() ? 0 : k * piece_bytes_),
                                       bytes};
    else
      out_[static_cast<size_t>(call.peer)] = {t + at, bytes};
    exchange(call);
    if (rank() == call.peer) sum_round(s, call, t + at, t + at, bytes);
    transport_->finish(call);
  }
}

/// all <- every rank's run, of which `own` is this one's. A root, which has them all, takes none.
void PeerCommunicator::gather_runs(Stream* s, const CommCall& call, std::byte* all, const std::byte* own, Cut cut) {
  const int64_t size_of_one = size_of(call.dtype), piece = kMostBytes / size_of_one;
  const int whole = call.op == CommOp::broadcast ? call.peer : -1;
  copy_bytes(s, all + cut.begin(rank()) * size_of_one, own, cut.count(rank()) * size_of_one);
  for (int64_t at = 0; at < std::max<int64_t>(1, cut.each); at += piece) {
    auto bytes = [&](int k) { return std::clamp<int64_t>(cut.count(k) - at, 0, piece) * size_of_one; };
    auto place = [&](int k) { return all + (cut.begin(k) + at) * size_of_one; };
    clear();
    for (int k = 0; k < size(); ++k) {
      if (k != whole) out_[static_cast<size_t>(k)] = {place(rank()), bytes(rank())};
      if (rank() != whole) in_[static_cast<size_t>(k)] = {place(k), bytes(k)};
    }
    exchange(call);
    for (int k = 0; k < size(); ++k)
      if (k != rank() && rank() != whole) copy_bytes(s, place(k), in_[static_cast<size_t>(k)].at, bytes(k));
    transport_->finish(call);
  }
}

/// Each rank gets its run of root's t, then all gather.
void PeerCommunicator::broadcast_runs(Stream& s, const CommCall& call, std::byte* t, Cut cut) {
  const int64_t size_of_one = size_of(call.dtype), piece = kMostBytes / size_of_one;
  for (int64_t at = 0; at < cut.each; at += piece) {
    auto run = [&](int k) {
      return Stretch{t + (cut.begin(k) + at) * size_of_one,
                     std::clamp<int64_t>(cut.count(k) - at, 0, piece) * size_of_one};
    };
    clear();
    const Stretch mine = run(rank());
    if (rank() == call.peer)
      for (int k = 0; k < size(); ++k) out_[static_cast<size_t>(k)] = run(k);
    else
      in_[static_cast<size_t>(call.peer)] = mine;
    exchange(call);
    if (rank() != call.peer) copy_bytes(&s, mine.at, in_[static_cast<size_t>(call.peer)].at, mine.bytes);
    transport_->finish(call);
  }
  gather_runs(&s, call, t, t + cut.begin(rank()) * size_of_one, cut);
}

void PeerCommunicator::exchange_parts(Stream& s, const CommCall& call, std::byte* out, const std::byte* in,
                                      int64_t part) {
  copy_bytes(&s, out + rank() * part, in + rank() * part, part);
  for (int64_t at = 0; at < part; at += kMostBytes) {
    const int64_t bytes = std::min(kMostBytes, part - at);
    clear();
    for (int k = 0; k < size(); ++k) {
      out_[static_cast<size_t>(k)] = {const_cast<std::byte*>(in) + k * part + at, bytes};
      in_[static_cast<size_t>(k)] = {out + k * part + at, bytes};
    }
    exchange(call);
    for (int k = 0; k < size(); ++k)
      if (k != rank()) copy_bytes(&s, out + k * part + at, in_[static_cast<size_t>(k)].at, bytes);
    transport_->finish(call);
  }
}

void PeerCommunicator::run(Stream& s, CommCall call, Tensor out, View in) {
  CHECK(!s.on_gpu(), "{} of {} on a GPU", names_of(call.op)[static_cast<size_t>(call.op)], name());
  auto* to = reinterpret_cast<std::byte*>(out.at);
  auto* from = reinterpret_cast<const std::byte*>(in.at);
  const Cut cut{call.elements, (call.elements + size() - 1) / size()};
  call.number = call.op == CommOp::receive ? ++taken_[static_cast<size_t>(call.peer)] : ++calls_;
  begin(call);
  switch (call.op) {
    case CommOp::all_reduce:
      reduce_runs(s, call, to + cut.begin(rank()) * size_of(call.dtype), to, cut);
      gather_runs(&s, call, to, to + cut.begin(rank()) * size_of(call.dtype), cut);
      break;
    case CommOp::reduce_scatter:
      reduce_runs(s, call, to, from, cut);
      break;
    case CommOp::all_gather:
      gather_runs(&s, call, to, from, cut);
      break;
    case CommOp::broadcast:
      broadcast_runs(s, call, to, cut);
      break;
    case CommOp::reduce:
      reduce_to_root(s, call, to);
      break;
    case CommOp::all_to_all:
      exchange_parts(s, call, to, from, cut.each * size_of(call.dtype));
      break;
    case CommOp::barrier:
      gather_runs(nullptr, call, nullptr, nullptr, cut);
      break;
    case CommOp::receive:
      transport_->receive(call, {to, out.bytes()});
      state_->received += out.bytes();
      break;
    case CommOp::split:
    case CommOp::send:
      CHECK(false, "not a call of run()");
  }
  state_->done();
}

int64_t PeerCommunicator::start_send(Stream& s, CommCall call, View t) {
  CHECK(!s.on_gpu(), "send of {} on a GPU", name());
  call.number = ++sent_[static_cast<size_t>(call.peer)];
  begin(call);
  last_ticket_ = transport_->send(call, {reinterpret_cast<std::byte*>(t.at), t.bytes()});
  state_->done();
  return last_ticket_;
}

void PeerCommunicator::finish_sends(Stream&, int64_t ticket) { transport_->wait_sent(ticket); }

std::unique_ptr<Communicator> PeerCommunicator::run_split(int color, int key, std::string name) {
  struct Wish {
    int32_t color, key, next_group;
  };
  std::vector<Wish> wishes(static_cast<size_t>(size()));
  const Wish mine{color, key, state_->next_group()};
  constexpr int64_t kFields = sizeof(Wish) / sizeof(int32_t);
  CommCall call{.op = CommOp::split, .dtype = DType::i32, .elements = kFields * size(), .number = ++calls_};
  begin(call);
  gather_runs(nullptr, call, reinterpret_cast<std::byte*>(wishes.data()), reinterpret_cast<const std::byte*>(&mine),
              {call.elements, kFields});
  state_->done();

  int group = 0;
  std::vector<int> members;
  for (int k = 0; k < size(); ++k) {
    const Wish& w = wishes[static_cast<size_t>(k)];
    group = std::max(group, w.next_group);
    if (w.color == color) members.push_back(k);
  }
  std::ranges::stable_sort(members, {}, [&](int k) { return wishes[static_cast<size_t>(k)].key; });
  state_->name_group(group, name);  // also where this rank is in none of the new groups
  if (color < 0) return nullptr;
  const auto num = static_cast<int>(members.size());
  if (num == 1) return std::make_unique<PlannedCommunicator>(1, 0, std::move(name));
  const auto me = static_cast<int>(std::ranges::find(members, rank()) - members.begin());
  const int64_t piece = state_->scratch().empty() ? piece_bytes_ : piece_of(scratch_bytes(), num);
  return std::make_unique<PeerCommunicator>(transport_->subset(members, group), state_, num, me, group, std::move(name),
                                            piece);
}

}  // namespace chiron
