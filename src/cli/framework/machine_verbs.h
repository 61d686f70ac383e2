#pragma once

#include "cli/framework/verb.h"

/// The command over pools of machines. It has a header of its own, as new commands may.
namespace gpusched::cli {

Action define_machines(Grammar& grammar);

}  // namespace gpusched::cli
