#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/framework/session.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"

namespace gpusched::cli {

/// One node's record of the native API.
Reply get_node(Session& session, const std::string& name);
/// "ready", or "ready, unreachable" when it does not report.
std::string node_state_text(const Json& node);
/// Returns its devices, under the names of either door.
std::vector<Json> node_devices(const Json& node);
/// Whether nobody has the GPU and new jobs get it: a free one may be unhealthy or too hot.
bool is_free_device(const Json& device);
int64_t free_device_count(const Json& node);
double node_cores(const Json& node, bool free);
/// Prints nodes or GPUs in every format but the two tables; false for those.
bool print_plain(const Session& session, Format format, std::string_view plural, std::string_view name_field,
                 const std::vector<Json>& things);
void print_table(const Session& session, const Table& table, bool wide, const std::string& when_empty);
/// A call about one node, such as "drain".
Reply change_node(Session& session, const std::string& name, const std::string& what,
                  const std::string& body = "{}");

}  // namespace gpusched::cli
