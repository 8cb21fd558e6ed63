#pragma once

#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/stack.h"
#include "io/checkpoint.h"
#include "train/options.h"

namespace chiron {

/// What a save stores: the parts that this rank has to save, and, on the first rank, the rest.
struct SaveContents {
  int64_t step = 0;
  std::vector<StatePart> model, optimizer;
  nlohmann::json state;
  std::map<std::string, std::string> extra;
};

/// Host memory that a snapshot of them takes.
int64_t snapshot_bytes(const SaveContents& contents);

/// Whether some saves of a run are written while training goes on: not those at its end.
bool saves_in_background(const Options& options);

/// Saves the state of a run, over all its ranks: each writes its parts, and when all have, the first commits. A save is
/// there as a whole or not at all. In the background it stores a snapshot, which a thread writes while training goes
/// on. Every rank calls the same functions in the same order; each is collective while a save is on its way.
class Saver {
 public:
  struct Setup {
    std::string dir;             ///< of the checkpoints
    int64_t keep_last = 1;       ///< older ones are removed when a newer one is whole
    int64_t writers = 0;         ///< ranks of one node that write at a time; 0: all
    int64_t snapshot_bytes = 0;  ///< of this rank; 0 and no parts to save, or no save in the background
  };
  /// Takes the memory of snapshots. Communicator and stream outlive this. At its end it waits for this rank's thread; a
  /// save that is not committed by then is abandoned.
  Saver(Setup setup, Communicator& world, Stream& s);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Starts a save, when the one before has ended. In the background it returns once the values are copied; else it is
  /// done on return.
  void save(SaveContents contents, bool in_background);
  /// Between steps: brings a save further whose threads are done. Throws, on every rank, what failed: an IoError that
  /// names the file; the checkpoints of before stay as they are.
  void poll();
  /// Until the save on its way, if any, is whole.
  void finish();
  bool is_saving() const { return phase_ != Phase::idle; }

 private:
  enum class Phase : uint8_t { idle, writing, committing };

  void take_snapshot();
  void advance();
  /// The next ranks' turn to write.
  void write_in_turn();
  void commit();
  template <class F>
  void run(F&& task);
  bool is_first() const { return world_.rank() == 0; }

  Setup setup_;
  Communicator& world_;
  Stream& s_;
  std::unique_ptr<HostBuffer> memory_;
  int64_t turn_of_rank_ = 0, num_turns_ = 1;

  Phase phase_ = Phase::idle;
  bool in_background_ = false;
  int64_t turn_ = 0;
  SaveContents contents_;
  std::optional<CheckpointSave> save_;  ///< on the first rank
  std::vector<FileRecord> written_;     ///< by this rank
  std::future<void> task_;              ///< last, since it uses the others: its end waits for a thread
};

}  // namespace chiron
