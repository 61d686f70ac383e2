#pragma once

#include <string>
#include <vector>

namespace gpusched {

/// Makes orphans below this process its children, so that `end_descendants` finds what daemons of it left.
void adopt_orphans();

/// Kills every process below this one and waits for it. Returns their command names; empty: there was none.
std::vector<std::string> end_descendants();

}  // namespace gpusched
