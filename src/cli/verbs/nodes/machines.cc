#include <cstdio>

#include "cli/commands.h"
#include "cli/framework/machine_verbs.h"
#include "cli/framework/session.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

std::string money_text(double amount) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f", amount);
  return text;
}

std::string pools_table(Session& session, const std::vector<Json>& pools) {
  Table table({{.title = "POOL"},
               {.title = "DRIVER", .drop_order = 2},
               {.title = "REGION", .drop_order = 4},
               {.title = "MACHINES", .right = true},
               {.title = "MIN-MAX", .right = true},
               {.title = "PRICE/H", .right = true, .drop_order = 1},
               {.title = "COST", .right = true},
               {.title = "BOOT", .right = true, .drop_order = 3},
               {.title = "TROUBLE", .may_shrink = true, .wraps = true}});
  for (const Json& pool : pools) {
    const std::size_t orphans = pool["orphans"].items().size();
    std::string trouble = pool["trouble"].text();
    if (orphans > 0) {
      trouble += (trouble.empty() ? "" : "; ") + std::to_string(orphans) +
                 (orphans == 1 ? " machine" : " machines") + " that nobody here knows: ";
      for (const Json& name : pool["orphans"].items())
        trouble += (trouble.ends_with(": ") ? "" : ", ") + name.text();
    }
    table.add({pool["name"].text(), pool["driver"].text(), pool["region"].text(),
               std::to_string(pool["machines"].integer()),
               std::to_string(pool["minimum"].integer()) + "-" + std::to_string(pool["maximum"].integer()),
               money_text(pool["price_per_hour"].number()), money_text(pool["cost"].number()),
               format_duration(pool["boot_seconds"].integer()), trouble});
  }
  return table.render(session.io().line_width(), colored(session.options(), session.io()));
}

std::string machines_table(Session& session, const std::vector<Json>& machines, Time now) {
  Table table({{.title = "MACHINE"},
               {.title = "POOL"},
               {.title = "STATE"},
               {.title = "REQUESTED", .right = true, .drop_order = 1},
               {.title = "READY", .right = true},
               {.title = "COST", .right = true, .drop_order = 2},
               {.title = "TROUBLE", .may_shrink = true, .wraps = true}});
  for (const Json& machine : machines) {
    const Time requested = parse_rfc3339(machine["requested_at"].text());
    const Time ready = parse_rfc3339(machine["ready_at"].text());
    table.add({machine["name"].text(), machine["pool"].text(), machine["state"].text(),
               requested.valid() ? format_relative(requested, now) : "",
               ready.valid() ? format_relative(ready, now) : "", money_text(machine["cost"].number()),
               machine["trouble"].text()});
  }
  return table.render(session.io().line_width(), colored(session.options(), session.io()));
}

int show_machines(Session& session) {
  const Reply reply = session.get("/v1/machines");
  if (!reply) return session.fail(*reply.trouble);
  const CliIo& io = session.io();
  if (session.options().json) {
    io.out(json_line(reply));
    return kExitOk;
  }
  const std::vector<Json> pools = reply.json["pools"].items();
  const std::vector<Json> machines = reply.json["machines"].items();
  if (pools.empty() && machines.empty()) {
    io.out("No pools of machines are configured (machines.pools_file).\n");
    return kExitOk;
  }
  io.out(pools_table(session, pools));
  io.out("\n");
  io.out(machines.empty() ? "No machines.\n" : machines_table(session, machines, session.io().wall_now()));
  return kExitOk;
}

}  // namespace

Action define_machines(Grammar& grammar) {
  grammar.details(
      "Pools are configured in the scheduler's machines.pools_file. A machine is asked for when jobs wait "
      "that "
      "no node can start, and goes back when it has been idle. To return one earlier, drain its node "
      "(gpu-cli "
      "node drain NAME); to keep one, give its node the label machine.keep (gpu-cli node label NAME "
      "machine.keep=yes).");
  grammar.example("gpu-cli machines", "see which machines are coming, and what each pool has cost");
  return [](Session& session) { return show_machines(session); };
}

}  // namespace gpusched::cli
