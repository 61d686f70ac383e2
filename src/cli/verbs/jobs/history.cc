#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/text/civil_time.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_query.h"

namespace gpusched::cli {
namespace {

constexpr int64_t kPageMax = 1'000;

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

/// Filters of a list of finished jobs.
struct Past {
  std::string job;
  std::string user;
  bool me = false;
  std::string state;
  std::string node;
  std::string since, until;
  int64_t limit = 50;
  bool all = false;
};

Result<std::string> query_of(const Session& session, const Past& past) {
  std::string query = "page_size=";
  query += std::to_string(past.all ? kPageMax : std::clamp<int64_t>(past.limit, 1, kPageMax));
  const Result<std::string> user = user_filter(session, past.user, past.me);
  if (!user) return user.error();
  const std::pair<const char*, std::string> texts[] = {{"tenant_id", session.options().tenant_id},
                                                       {"user", *user},
                                                       {"state", past.state},
                                                       {"node", past.node},
                                                       {"since", past.since},
                                                       {"until", past.until}};
  for (const auto& [name, text] : texts) {
    if (!text.empty()) query += "&" + std::string(name) + "=" + url_encoded(text);
  }
  return query;
}

std::string gpus_of(const Json& job) {
  const double gpus = static_cast<double>(job["gpu_count"].integer()) + job["gpu_shares"].number();
  char text[32];
  std::snprintf(text, sizeof text, "%g", gpus);
  return text;
}

void add_job(const Json& job, Table& table) {
  const Time started = parse_rfc3339(job["started_at"].text());
  const Time ended = parse_rfc3339(job["ended_at"].text());
  const std::string ran = started.valid() ? format_duration((ended - started).ms() / 1'000) : "";
  const int64_t signal = job["signal"].integer();
  const std::string status = signal != 0       ? "signal " + std::to_string(signal)
                             : started.valid() ? std::to_string(job["exit_code"].integer())
                                               : "";
  table.add({job["job_id"].text(), job["name"].text(), job["user"].text(), job["tenant_name"].text(),
             job["state"].text(), status, gpus_of(job), utc_text(parse_rfc3339(job["submitted_at"].text())),
             ran, format_duration(static_cast<int64_t>(job["gpu_seconds"].number())),
             job["node_name"].text()});
}

int list_past(Session& session, const Past& past) {
  const Result<std::string> query = query_of(session, past);
  if (!query) return session.fail(kExitUsage, query.error().message, "usage");
  const CliIo& io = session.io();
  std::vector<Json> jobs;
  std::string token;
  while (true) {
    std::string path = "/v1/history/jobs?" + *query;
    if (!token.empty()) path += "&page_token=" + url_encoded(token);
    const Reply reply = session.get(path);
    if (!reply) return session.fail(*reply.trouble);
    for (Json& job : reply.json["jobs"].items()) jobs.push_back(std::move(job));
    token = reply.json["next_page_token"].text();
    if (token.empty() || (!past.all && std::cmp_greater_equal(jobs.size(), past.limit))) break;
  }
  if (!past.all && std::cmp_greater(jobs.size(), past.limit))
    jobs.resize(static_cast<std::size_t>(past.limit));
  if (session.options().json) {
    std::string text = "{\"jobs\":[";
    for (std::size_t i = 0; i < jobs.size(); ++i) text += (i > 0 ? "," : "") + jobs[i].serialize();
    io.out(text + "]}\n");
    return kExitOk;
  }
  if (jobs.empty()) {
    io.out("No finished jobs.\n");
    return kExitOk;
  }
  Table table({{.title = "ID"},
               {.title = "NAME", .may_shrink = true},
               {.title = "USER"},
               {.title = "TENANT", .drop_order = 3},
               {.title = "STATE"},
               {.title = "EXIT", .right = true},
               {.title = "GPUS", .right = true},
               {.title = "SUBMITTED", .drop_order = 2},
               {.title = "RAN", .right = true},
               {.title = "GPU TIME", .right = true, .drop_order = 1},
               {.title = "NODE"}});
  for (const Json& job : jobs) add_job(job, table);
  io.out(table.render(io.line_width(), colored(session.options(), io)));
  if (!token.empty()) io.out("There are more; --all shows all, --limit more of them.\n");
  return kExitOk;
}

}  // namespace

Action define_history(Grammar& grammar) {
  const auto past = std::make_shared<Past>();
  grammar.argument("JOB", &past->job, "Job id; all finished jobs are listed if omitted")
      .optional()
      .completes(Complete::kJob);
  grammar.option("-u,--user", "NAME", &past->user, "List only jobs that this user submitted");
  grammar.flag("--me", past->me, "List only your own jobs");
  grammar.option("--state", "STATE", &past->state,
                 "List only jobs that ended so: completed, failed, cancelled");
  grammar.option("--node", "NODE", &past->node, "List only jobs that ran on this node")
      .completes(Complete::kNode);
  grammar.option("--since", "TIME", &past->since,
                 "List only jobs submitted since this time, or within this duration, such as 30d");
  grammar.option("--until", "TIME", &past->until,
                 "List only jobs submitted before this time, or longer ago than this duration");
  grammar.option("-n,--limit", "COUNT", &past->limit, "List at most this many jobs (default: 50)");
  grammar.flag("-a,--all", past->all, "List all of them");
  grammar.details(
      "Without a job, finished jobs of all time are listed, newest first, from the scheduler's history. With "
      "a job that the scheduler still knows (for seven days after its end), shows when it was submitted, "
      "placed, started and ended, on which node, why each attempt ended, who submitted it, and who requested "
      "to cancel, hold, release, requeue or change it. These names are given by the client; the scheduler "
      "does not check them. The newest 64 events of a job are kept.");
  grammar.example("gpu-cli history --since 90d --state failed", "list the failed jobs of three months");
  return [past](Session& session) {
    return past->job.empty() ? list_past(session, *past) : show_history(session, past->job);
  };
}

}  // namespace gpusched::cli
