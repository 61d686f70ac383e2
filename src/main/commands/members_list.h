#pragma once

#include "grammar/program.h"

namespace gpusched {

/// `gpu-scheduler members list [--config FILE] [--json]`: asks every scheduler of `replica.peers` how it is,
/// at the port of its metrics. Exit status: 0 all serve, 1 one is away or there is no leader, 2 the
/// configuration names no others.
ProgramCommand members_list_command();

}  // namespace gpusched
