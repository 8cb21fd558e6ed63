#pragma once

#include <exception>
#include <string>

#include "base/error.h"
#include "comm/open_ranks.h"
#include "train/options.h"

/// What the processes of one run, its ranks, do together around a training.
namespace chiron::cli {

/// What the ranks of one run must agree in. `wrong`: the error in this rank's configuration, or empty.
OpenOptions meeting(const Options& options, const std::string& wrong);

/// This rank's configuration is wrong. Most likely every rank has found the same: then the first says so. If only some
/// have, they are named.
[[noreturn]] void refuse_together(const RankInfo& ranks, const Error& wrong);

/// Tells all ranks why this one ends; one of them tells the user.
[[noreturn]] void end_together(World& world, const std::exception& e);

}  // namespace chiron::cli
