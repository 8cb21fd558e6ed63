#include "cli/run_commands.h"

#include <cstdio>

#include "train/plan.h"
#include "train/setup.h"
#include "train/sources.h"

namespace chiron::cli {

ExitCode plan(const PlanArgs& args) {
  Log log;
  const Options options = with_model(load_options(args.config, args.sets), log);
  const auto model = make_model(model_setup(options, data_vocabulary(options)));
  // Planning for a GPU needs none.
  const Device device = gpu::kBuilt && options.run.device == DeviceChoice::gpu ? Device{DeviceKind::gpu, 0}
                                                                               : choose_device(options.run.device, log);
  const Plan plan = make_plan(options, *model, device);
  std::string out = plan_table(plan, options, *model);
  if (args.ops) out += "\n" + plan_ops_table(plan, options, *model);
  std::fputs(out.c_str(), stdout);
  return ExitCode::done;
}

}  // namespace chiron::cli
