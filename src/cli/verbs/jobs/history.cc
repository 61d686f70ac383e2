#include <memory>

#include "base/text/civil_time.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

/// "+1h05m": how long after its submission.
std::string offset_of(Time at, Time submitted) {
  const int64_t seconds = (at - submitted).ns / 1'000'000'000;
  return seconds <= 0 ? "" : "+" + format_duration(seconds);
}

int show_history(Session& session, const std::string& job) {
  const std::string& tenant = session.options().tenant_id;
  const std::string of_tenant = tenant.empty() ? std::string() : "?tenant_id=" + url_encoded(tenant);
  const Reply reply = session.get("/v1/jobs/" + url_encoded(job) + "/history" + of_tenant);
  if (!reply) return session.fail(*reply.trouble);
  const CliIo& io = session.io();
  if (session.options().json) {
    io.out(json_line(reply));
    return kExitOk;
  }
  const std::vector<Json> lines = reply.json["lines"].items();
  const Time submitted = lines.empty() ? Time{} : parse_rfc3339(lines.front()["at"].text());
  Table table({{.title = "TIME"},
               {.title = "AFTER", .right = true, .drop_order = 1},
               {.title = "ATTEMPT", .right = true},
               {.title = "EVENT"},
               {.title = "WHAT HAPPENED", .may_shrink = true, .wraps = true}});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const Time at = parse_rfc3339(line["at"].text());
    const int64_t attempt = line["attempt"].integer();
    table.add({utc_text(at), offset_of(at, submitted), attempt == 0 ? "" : std::to_string(attempt),
               line["event"].text(), line["message"].text()});
    const int64_t dropped = i == 0 ? reply.json["dropped"].integer() : 0;
    if (dropped > 0)
      table.add({"...", "", "", "", std::to_string(dropped) + " older events are no longer kept"});
  }
  io.out(table.render(io.line_width(), colored(session.options(), io)));
  return kExitOk;
}

}  // namespace

Action define_history(Grammar& grammar) {
  const auto job = std::make_shared<std::string>();
  grammar.argument("JOB", job.get(), "Job id").completes(Complete::kJob);
  grammar.details(
      "Shows when the job was submitted, placed, started and ended, on which node, why each attempt ended, "
      "who submitted it, and who requested to cancel, hold, release, requeue or change it. These names are "
      "given by the client; the scheduler does not check them. The newest 64 events of a job are kept.");
  return [job](Session& session) { return show_history(session, *job); };
}

}  // namespace gpusched::cli
