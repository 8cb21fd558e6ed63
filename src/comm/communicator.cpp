#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace chiron {
namespace {

const char* name_of(CommOp op) { return names_of(op)[static_cast<size_t>(op)]; }

bool reduces(CommOp op) { return op == CommOp::all_reduce || op == CommOp::reduce_scatter || op == CommOp::reduce; }

}  // namespace

std::string CommCall::str() const {
  static constexpr const char* kReduces[] = {"sum", "average", "max"};
  std::string text = fmt::format("{} #{}", name_of(op), number);
  if (op == CommOp::barrier || op == CommOp::split) return text;
  text += fmt::format(" of {} x {}", chiron::name_of(dtype), elements);
  if (reduces(op)) text += fmt::format(" ({})", kReduces[static_cast<size_t>(reduce)]);
  if (op == CommOp::broadcast || op == CommOp::reduce) text += fmt::format(" with root {}", peer);
  return text;
}

Communicator::Communicator(int size, int rank, std::string name) : size_(size), rank_(rank), name_(std::move(name)) {
  CHECK(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  for (size_t i = 0; i < op_names_.size(); ++i) op_names_[i] = fmt::format("{} {}", names_of(CommOp{})[i], name_);
}

void Communicator::collective(Stream& s, CommOp op, Reduce how, int root, Tensor out, View in) {
  CHECK(root >= 0 && root < size_, "root {} of {}", root, size_);
  CHECK(out.dtype == in.dtype, "{} of {} to {}", name_of(op), chiron::name_of(in.dtype), chiron::name_of(out.dtype));
  if (reduces(op)) {
    const DType d = out.dtype;
    const bool whole = d == DType::i32 || d == DType::i64 || d == DType::u8;
    const bool real = d == DType::f32 || d == DType::f64 || d == DType::bf16 || d == DType::f16;
    CHECK(real || (whole && how != Reduce::average), "{} of {}", name_of(op), chiron::name_of(d));
  }
  if (size_ == 1) {
    if (out.at != in.at && out.numel() > 0) s.copy(out, in.reshape(out.shape));
    return;
  }
  const CommCall call{.op = op,
                      .reduce = how,
                      .dtype = out.dtype,
                      .peer = root,
                      .elements = op == CommOp::barrier ? 0 : std::max(out.numel(), in.numel())};
  OpScope scope(s, op_names_[static_cast<size_t>(op)].c_str(), {out}, {in}, 0);
  if (scope) run(s, call, out, in);
}

void Communicator::all_reduce(Stream& s, Tensor t, Reduce op) { collective(s, CommOp::all_reduce, op, 0, t, t); }

void Communicator::reduce_scatter(Stream& s, Tensor part, View all, Reduce op) {
  CHECK(all.numel() == size_ * part.numel(), "reduce_scatter of {} to {} by {} ranks", all.shape.str(),
        part.shape.str(), size_);
  collective(s, CommOp::reduce_scatter, op, 0, part, all);
}

void Communicator::all_gather(Stream& s, Tensor all, View part) {
  CHECK(all.numel() == size_ * part.numel(), "all_gather of {} to {} by {} ranks", part.shape.str(), all.shape.str(),
        size_);
  collective(s, CommOp::all_gather, Reduce::sum, 0, all, part);
}

void Communicator::broadcast(Stream& s, Tensor t, int root) {
  collective(s, CommOp::broadcast, Reduce::sum, root, t, t);
}

void Communicator::reduce(Stream& s, Tensor t, Reduce op, int root) { collective(s, CommOp::reduce, op, root, t, t); }

void Communicator::all_to_all(Stream& s, Tensor out, View in) {
  CHECK(in.numel() == out.numel() && in.numel() % size_ == 0, "all_to_all of {} to {} by {} ranks", in.shape.str(),
        out.shape.str(), size_);
  CHECK(size_ == 1 || out.at != in.at, "all_to_all in place");
  collective(s, CommOp::all_to_all, Reduce::sum, 0, out, in);
}

void Communicator::barrier(Stream& s) { collective(s, CommOp::barrier, Reduce::sum, 0, {}, {}); }

int64_t Communicator::send(Stream& s, View t, int peer) {
  CHECK(peer >= 0 && peer < size_ && peer != rank_, "rank {} of {} sends to {}", rank_, size_, peer);
  OpScope scope(s, op_names_[static_cast<size_t>(CommOp::send)].c_str(), {}, {t}, 0);
  if (!scope) return 0;
  return start_send(s, {.op = CommOp::send, .dtype = t.dtype, .peer = peer, .elements = t.numel()}, t);
}

void Communicator::receive(Stream& s, Tensor t, int peer) {
  CHECK(peer >= 0 && peer < size_ && peer != rank_, "rank {} of {} receives from {}", rank_, size_, peer);
  OpScope scope(s, op_names_[static_cast<size_t>(CommOp::receive)].c_str(), {t}, {}, 0);
  if (scope) run(s, {.op = CommOp::receive, .dtype = t.dtype, .peer = peer, .elements = t.numel()}, t, {});
}

void Communicator::wait_sent(Stream& s, int64_t ticket) {
  if (!s.dry() && size_ > 1) finish_sends(s, ticket);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, std::string name) {
  if (size_ > 1) return run_split(color, key, std::move(name));
  if (color < 0) return nullptr;
  return std::make_unique<PlannedCommunicator>(1, 0, std::move(name));
}

void PlannedCommunicator::run(Stream&, CommCall call, Tensor, View) {
  CHECK(false, "{} in the group {}, which is only planned", call.str(), name());
}
int64_t PlannedCommunicator::start_send(Stream&, CommCall call, View) {
  CHECK(false, "{} in the group {}, which is only planned", call.str(), name());
  return 0;
}
void PlannedCommunicator::finish_sends(Stream&, int64_t) {}
std::unique_ptr<Communicator> PlannedCommunicator::run_split(int color, int, std::string name) {
  if (color < 0) return nullptr;
  return std::make_unique<PlannedCommunicator>(size(), rank(), std::move(name));
}

}  // namespace chiron
