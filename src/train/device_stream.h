#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "ops/gemm/gemm_choices.h"
#include "train/options.h"

namespace chiron {

/// A stream on a device, with what it computes its products by: on a GPU, the library's algorithms or our own kernels.
struct DeviceStream {
  std::unique_ptr<GemmChoices> choices;  ///< null on the CPU
  Stream stream;
};

/// A stream on the device that was asked for (choose_device). Knows what was found fastest on this machine before.
DeviceStream open_stream(DeviceChoice choice, ThreadPool& pool, Log& log);

/// Times the products that a plan on this stream has noted and that are not known yet, and remembers them for later
/// runs of this user.
void tune_products(DeviceStream& s, Log& log);

/// Where that is remembered: chiron/products.json in the user's folder of caches; empty if there is no such folder.
std::string tuning_file();

}  // namespace chiron
