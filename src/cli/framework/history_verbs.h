#pragma once

#include "cli/framework/verb.h"

/// The command over the history's sums. It has a header of its own, as new commands may.
namespace gpusched::cli {

Action define_usage(Grammar& grammar);

}  // namespace gpusched::cli
