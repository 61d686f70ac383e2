#include <cstdio>

#include "cli/commands.h"
#include "cli/framework/tenant_names.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"

namespace gpusched::cli {
namespace {

std::string decimal(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

void add_rows(Session& session, Table& table, const std::string& what, const Json& scores) {
  for (const Json& score : with_tenant_names(session, scores.items())) {
    const std::string name = score["tenant_name"].text();
    const std::string tenant = name.empty() ? score["tenant_id"].text() : name;
    const int64_t count = score["count"].integer();
    if (count == 0 && !tenant.empty()) continue;
    const auto percent = [&](const char* key) {
      return count == 0 ? std::string("-") : decimal(score[key].number() * 100, "%.1f%%");
    };
    const auto loss = [&](const char* key) {
      return count == 0 ? std::string("-") : decimal(score[key].number(), "%.1f");
    };
    const bool starts = what == "starts";
    table.add({what, tenant.empty() ? "all" : tenant, std::to_string(count), percent("p50_coverage"),
               percent("p90_coverage"), loss("p50_pinball_seconds"), loss("p90_pinball_seconds"),
               starts ? loss("mean_error_seconds") : std::string()});
  }
}

/// Memory that tasks of agents were given and used; nothing while none was given what was learned.
std::string memory_text(Session& session, const Json& scores, int width) {
  Table table({{.title = "TASKS' MEMORY"},
               {.title = "COUNT", .right = true},
               {.title = "WITHIN", .right = true},
               {.title = "GIVEN (MB)", .right = true},
               {.title = "USED (MB)", .right = true}});
  bool any = false;
  for (const Json& score : with_tenant_names(session, scores.items())) {
    const int64_t count = score["count"].integer();
    if (count == 0) continue;
    any = true;
    const std::string name = score["tenant_name"].text();
    const std::string tenant = name.empty() ? score["tenant_id"].text() : name;
    table.add({tenant.empty() ? "all" : tenant, std::to_string(count),
               decimal(score["within"].number() * 100, "%.1f%%"),
               decimal(score["mean_given_mb"].number(), "%.0f"),
               decimal(score["mean_peak_mb"].number(), "%.0f")});
  }
  return any ? '\n' + table.render(width) : std::string();
}

int show_quality(Session& session) {
  const std::string& tenant = session.options().tenant_id;
  const Reply reply =
      session.get("/v1/quality" + (tenant.empty() ? std::string() : "?tenant_id=" + url_encoded(tenant)));
  if (!reply) return session.fail(*reply.trouble);
  const CliIo& io = session.io();
  if (session.options().json) {
    io.out(json_line(reply));
    return kExitOk;
  }
  Table table({{.title = "PREDICTED"},
               {.title = "TENANT"},
               {.title = "COUNT", .right = true},
               {.title = "WITHIN P50", .right = true},
               {.title = "WITHIN P90", .right = true},
               {.title = "LOSS P50 (s)", .right = true},
               {.title = "LOSS P90 (s)", .right = true},
               {.title = "ERROR (s)", .right = true}});
  add_rows(session, table, "run times", reply.json["run_times"]);
  add_rows(session, table, "starts", reply.json["starts"]);
  io.out(table.render(io.line_width()) + memory_text(session, reply.json["task_memory"], io.line_width()));
  return kExitOk;
}

}  // namespace

Action define_quality(Grammar& grammar) {
  grammar.details(
      "Run times are predicted when a job starts; starts are predicted when a pending job is first examined: "
      "by `gpu-cli explain`, or within a minute. Ideally half of the cases fall within p50 and nine of ten "
      "within p90. LOSS is the mean pinball loss, ERROR the mean distance from p50; lower is better. Counted "
      "since the scheduler started; the same figures are exported as metrics. TASKS' MEMORY is of tasks of "
      "agents that were given the GPU memory that was learned: the share that used no more, what they were "
      "given and what they used, on average.");
  return [](Session& session) { return show_quality(session); };
}

}  // namespace gpusched::cli
