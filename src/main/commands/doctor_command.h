#pragma once

#include <string>

#include "config/config.h"
#include "grammar/program.h"
#include "ops/doctor.h"

namespace gpusched {

/// `gpu-scheduler doctor [--config F] [--data-dir D] [--json]`: everything that the scheduler needs of this
/// machine, each with a verdict and the command that repairs it. Works beside a running scheduler. Exit
/// status: 0 all is well, 1 warnings, 2 something fails or the command line is wrong.
ProgramCommand doctor_command();

/// The examination itself. Writes and removes one file in `data_dir`.
Diagnosis examine_scheduler(const Config& config, const std::string& data_dir);

}  // namespace gpusched
