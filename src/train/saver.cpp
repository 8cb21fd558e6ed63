#include "train/saver.h"

#include <unistd.h>

#include <chrono>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "comm/together.h"
#include "core/staging.h"

namespace chiron {
namespace {

constexpr int64_t kAlign = 64;

int64_t bytes_of(const Rows& r) { return r.rows * r.cols * size_of(r.dtype); }
int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

/// Between ranks, records of files are text: a line each of size, hash and name.
std::string to_text(const std::vector<FileRecord>& records) {
  std::string text;
  for (const FileRecord& r : records) text += fmt::format("{} {} {} {}\n", r.size, r.hash.high, r.hash.low, r.name);
  return text;
}

std::vector<FileRecord> to_records(const std::vector<std::string>& texts) {
  std::vector<FileRecord> records;
  for (const std::string& text : texts) {
    std::istringstream in(text);
    for (FileRecord r; in >> r.size >> r.hash.high >> r.hash.low >> r.name;) records.push_back(r);
  }
  return records;
}

}  // namespace

int64_t snapshot_bytes(const SaveContents& contents) {
  int64_t bytes = 0;
  for (const auto* parts : {&contents.model, &contents.optimizer})
    for (const StatePart& part : *parts) bytes += aligned(bytes_of(part.data));
  return bytes;
}

bool saves_in_background(const Options& options) {
  const CheckpointOptions& c = options.checkpoint;
  return c.async && c.every > 0 && c.every < options.training.max_steps;
}

Saver::Saver(Setup setup, Communicator& world, Stream& s) : setup_(std::move(setup)), world_(world), s_(s) {
  if (setup_.snapshot_bytes > 0) memory_ = std::make_unique<HostBuffer>(s.device(), setup_.snapshot_bytes);
  if (setup_.writers == 0) return;
  const std::vector<std::string> hosts = gather_texts(world_, s_, host_name());
  std::map<std::string, int64_t> ranks;  // of each node, so far
  for (size_t k = 0; k < hosts.size(); ++k) {
    const int64_t turn = ranks[hosts[k]]++ / setup_.writers;
    if (k == static_cast<size_t>(world_.rank())) turn_of_rank_ = turn;
    num_turns_ = std::max(num_turns_, turn + 1);
  }
}

template <class F>
void Saver::run(F&& task) {
  // Where no thread can be had, and in the foreground, the task runs when it is waited for.
  task_ = std::async(in_background_ ? std::launch::async | std::launch::deferred : std::launch::deferred,
                     std::forward<F>(task));
}

void Saver::save(SaveContents contents, bool in_background) {
  finish();
  contents_ = std::move(contents);
  in_background_ = in_background;
  together(world_, s_, [&] {
    if (is_first()) save_.emplace(setup_.dir, contents_.step);
  });
  if (in_background_) take_snapshot();
  phase_ = Phase::writing;
  turn_ = 0;
  written_.clear();
  write_in_turn();
  if (!in_background_) finish();
}

void Saver::take_snapshot() {
  int64_t at = 0;
  for (auto* parts : {&contents_.model, &contents_.optimizer})
    for (StatePart& part : *parts) {
      const Rows from = part.data;
      CHECK(memory_ && at + bytes_of(from) <= memory_->bytes(), "a snapshot of more than {} bytes",
            setup_.snapshot_bytes);
      part.data.at = reinterpret_cast<uintptr_t>(memory_->data()) + static_cast<uintptr_t>(at);
      part.data.ld = from.cols;
      const int64_t rows = from.contiguous() ? from.rows : 1;  // that lie one after another
      for (int64_t row = 0; row < from.rows; row += rows) {
        const Rows block = from.slice(row, row + rows);
        s_.download(reinterpret_cast<void*>(part.data.slice(row, row + rows).at),
                    {block.at, block.dtype, {rows, block.cols}});
      }
      at += aligned(bytes_of(from));
    }
}

void Saver::write_in_turn() {
  if (turn_ != turn_of_rank_) return;
  run([this] {
    const std::string folder = CheckpointSave::folder_of(setup_.dir, contents_.step);
    const Staging staging = in_background_ ? Staging() : Staging(s_);
    written_ = write_shards(folder, "model", world_.rank(), contents_.model, staging);
    for (FileRecord& r : write_shards(folder, "optimizer", world_.rank(), contents_.optimizer, staging))
      written_.push_back(std::move(r));
  });
}

void Saver::commit() {
  phase_ = Phase::committing;
  std::vector<FileRecord> records = to_records(gather_texts(world_, s_, to_text(written_)));
  if (!is_first()) return;
  run([this, records = std::move(records)] {
    save_->commit(records, contents_.state, contents_.extra);
    save_.reset();
    prune_checkpoints(setup_.dir, setup_.keep_last);
  });
}

void Saver::poll() {
  if (phase_ == Phase::idle) return;
  const bool ended = !task_.valid() || task_.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
  std::exception_ptr failure;
  if (ended && task_.valid()) {
    try {
      task_.get();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  // 2: somebody has failed, and nobody waits for those who have not.
  const int64_t state = largest(world_, s_, failure ? 2 : ended ? 0 : 1);
  if (state == 1) return;
  if (state == 0) return advance();
  try {
    together(world_, s_, [&] {
      if (task_.valid()) task_.get();  // nobody writes into a folder that is being removed
      if (failure) std::rethrow_exception(failure);
    });
  } catch (...) {
    save_.reset();
    phase_ = Phase::idle;
    throw;
  }
}

void Saver::advance() {
  if (phase_ == Phase::committing) {
    phase_ = Phase::idle;
    contents_ = {};
  } else if (++turn_ < num_turns_) {
    write_in_turn();
  } else {
    commit();
  }
}

void Saver::finish() {
  while (phase_ != Phase::idle) {
    // A slow disk is no rank that is silent: it tells the others now and then.
    if (task_.valid()) task_.wait_for(std::chrono::seconds(1));
    poll();
  }
}

}  // namespace chiron
