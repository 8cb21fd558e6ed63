#pragma once

#include <string>
#include <vector>

#include "base/schema.h"
#include "parallel/cost.h"
#include "parallel/play.h"

namespace chiron {

/// How fast ops are: products by their FLOPs, all else by the bytes of its operands.
class OpSpeeds {
 public:
  OpSpeeds() = default;
  /// Seconds per FLOP of products and per byte of the rest; infinite speed is no speed.
  OpSpeeds(double flops_per_second, double bytes_per_second);
  /// Takes the figures of `chiron bench step --json`: each op has its own speed, what the file lacks the mean of all
  /// products or all others. DataError if a step's ops are not in it.
  void read(const std::string& file);
  double seconds(std::string_view op, const Work& work) const;

 private:
  double per_flop_ = 0, per_byte_ = 0;
  std::map<std::string, double, std::less<>> by_op_;
};

/// Machines, as `chiron plan --cluster` reads them.
struct Cluster {
  struct Way {
    double bandwidth = 0, latency = 0;
    void describe(Schema& s);
    /// In bytes and seconds.
    Link link() const { return {bandwidth * 1e9, latency * 1e-6}; }
  };
  int64_t nodes = 1, ranks_per_node = 8, memory = 0;
  Way inside, between;
  bool overlap = true;
  double tflops = 0, memory_bandwidth = 0;
  std::string ops;

  void describe(Schema& s);
  int ranks() const { return static_cast<int>(nodes * ranks_per_node); }

  OpSpeeds speeds;  ///< not an option
};

/// Reads and checks such a file; `ops` stands beside it. ConfigError for all that is wrong.
Cluster load_cluster(const std::string& file);

/// One pipeline stage's part of a step, by a rank of it.
struct StageStep {
  const StepWork* work;
  int micros;  ///< of the traced step: all, or of one stage also two, of which the first stands for all
               ///< but the last
  std::vector<UnitRange> units;  ///< by chunk
  int rank;
};

/// What a step is predicted to take, in seconds.
struct Prediction {
  struct Stage {
    double computing = 0, communicating = 0;  ///< which nothing hides
    double hidden = 0;                        ///< communication that runs beside computing
  };
  double seconds = 0;
  double bubble = 0;  ///< part of the time of all stages' passes in which they wait for each other
  std::vector<Stage> stages;

  std::string table(double tokens, double flops, int ranks) const;
};

/// Where a cluster overlaps, sums and gathers over data ranks run beside the passes of the other units of a chunk: of n
/// units the nth part has nothing beside it. All else waits for its communication.
Prediction predict(const Cluster& cluster, const MeshShape& mesh, ScheduleShape shape,
                   const std::vector<StageStep>& stages);

}  // namespace chiron
