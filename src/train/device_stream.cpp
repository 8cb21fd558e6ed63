#include "train/device_stream.h"

#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "train/setup.h"

namespace chiron {

std::string tuning_file() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return std::string(cache) + "/chiron/products.json";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/chiron/products.json";
  return "";
}

DeviceStream open_stream(DeviceChoice choice, ThreadPool& pool, Log& log) {
  const Device device = choose_device(choice, log);
  DeviceStream s{nullptr, Stream(device, pool)};
  if (device.kind == DeviceKind::cpu) return s;
  s.choices = std::make_unique<GemmChoices>(device);
  s.stream.set_gemm_choices(s.choices.get());
  log.info("products by {}", s.choices->library());
  try {
    if (const std::string file = tuning_file(); !file.empty()) s.choices->load(file);
  } catch (const Error& e) {
    log.warning("what was found out about products before is not used: {}", e.what());
  }
  return s;
}

void tune_products(DeviceStream& s, Log& log) {
  if (!s.choices) return;
  const int timed = s.choices->tune(s.stream);
  if (timed == 0) return;
  log.info("timed algorithms for {} products", timed);
  const std::string file = tuning_file();
  if (file.empty()) return;
  // Only a cache: a run does not fail for it.
  try {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    s.choices->save(file);
  } catch (const std::exception& e) {
    log.warning("the choice of algorithms is not remembered: {}", e.what());
  }
}

}  // namespace chiron
