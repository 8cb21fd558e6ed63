#pragma once

#include <string>

#include "train/plan.h"

namespace chiron {

/// Compares what a rank of a run needs with its share of what its device, or node, has free. DeviceError if a GPU, or
/// all that a CPU has, is too small: says what the plan needs, and which options would fit. On a CPU that has less
/// available now, the log warns.
void check_memory(const Plan& plan, const Options& options, const Model& model, Device device, Log& log,
                  const Mesh& mesh = Mesh::single(), int ranks_per_node = 1);

/// Bytes that a run could take on a device now.
int64_t free_memory(Device device);

/// "the run needs ... by plan: weights ...", and the options that would fit into `free` bytes.
std::string memory_advice(const Plan& plan, const Options& options, const Model& model, Device device, int64_t free,
                          const Mesh& mesh = Mesh::single());

}  // namespace chiron
