#pragma once

#include <string>

#include "shim/protocol.h"
#include "shim/start_child.h"

namespace gpusched::shim {

/// Why the plan's command does not run, in words.
std::string start_failure(const ChildPlan& plan, const StartView& request);

}  // namespace gpusched::shim
