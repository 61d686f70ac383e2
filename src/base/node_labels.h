#pragma once

#include <string_view>

/// Labels of nodes that mean something to the scheduler.
namespace gpusched {

/// Every node has it: its own name, by which jobs choose nodes.
inline constexpr std::string_view kNodeNameLabel = "node";

}  // namespace gpusched
