#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/terminal/screen.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_columns.h"
#include "cli/verbs/jobs/job_query.h"

namespace gpusched::cli {
namespace {

constexpr int kWideWidth = 1'000;

struct ListOptions {
  std::string states;
  int64_t limit = 50;
  bool all = false;
  std::string sort;
  std::string columns;
  std::string format;
  std::string user;
  std::string name;
  std::vector<std::string> labels;
  std::string since;
  bool no_header = false;
  bool watch = false;
  std::string interval = "2s";
};

std::vector<std::string> columns_of(const ListOptions& list, Format format) {
  if (!list.columns.empty()) return comma_list(list.columns);
  if (format == Format::kWide) return wide_job_columns();
  return {"id", "name", "state", "gpus", "priority", "tenant", "submitted", "ran"};
}

Result<JobQuery> query_of(const Session& session, const ListOptions& list) {
  JobQuery query{.tenant = session.options().tenant_id, .user = list.user, .name = list.name};
  Result<std::vector<std::string>> states = parse_states(list.states);
  if (!states) return states.error();
  query.states = std::move(*states);
  for (const std::string& label : list.labels) {
    const size_t equals = label.find('=');
    query.labels.emplace_back(label.substr(0, equals), equals == std::string::npos
                                                           ? std::nullopt
                                                           : std::optional(label.substr(equals + 1)));
  }
  if (!list.since.empty()) {
    const Result<Time> since = parse_since(list.since, session.io().wall_now());
    if (!since) return since.error();
    query.since = *since;
  }
  const Format format = format_of(list.format, session.options().json);
  if (format != Format::kJson && format != Format::kYaml) {
    std::vector<std::string> keys =
        format == Format::kName ? std::vector<std::string>{} : columns_of(list, format);
    for (std::string key : comma_list(list.sort)) {
      if (key.starts_with('-') || key.starts_with('+')) key.erase(0, 1);
      keys.push_back(std::move(key));
    }
    query.fields = fields_of(keys);
  }
  // The order may put the oldest one first: all must be known then.
  if (!list.all && list.sort.empty()) query.limit = list.limit;
  return query;
}

std::string objects_text(const FoundJobs& found) {
  std::string text = "{\"jobs\":[";
  for (size_t i = 0; i < found.jobs.size(); ++i) text += (i > 0 ? "," : "") + found.jobs[i].serialize();
  return text + "],\"total\":" + std::to_string(found.total) + "}\n";
}

std::string shown(const Session& session, const ListOptions& list, const FoundJobs& found, Format format,
                  int width) {
  switch (format) {
    case Format::kJson:
      return objects_text(found);
    case Format::kYaml: {
      const Result<Json> whole = Json::parse(objects_text(found));
      CHECK(whole.ok());
      return yaml_text(*whole);
    }
    case Format::kName: {
      std::string text;
      for (const Json& job : found.jobs) text += job_id_of(job) + "\n";
      return text;
    }
    case Format::kTable:
    case Format::kWide:
      break;
  }
  if (found.jobs.empty()) return list.no_header ? "" : "No jobs.\n";
  const CliIo& io = session.io();
  Table table = job_table(found.jobs, columns_of(list, format), io.wall_now());
  if (list.no_header) table.hide_titles();
  const bool unlimited = format == Format::kWide && !io.out_is_terminal;
  std::string text = table.render(unlimited ? kWideWidth : width, colored(session.options(), io));
  if (found.complete || list.no_header) return text;
  text += "The newest " + std::to_string(found.jobs.size());
  if (found.total > static_cast<int64_t>(found.jobs.size())) text += " of " + std::to_string(found.total);
  return text + "; use --all or --limit N for more.\n";
}

/// Asks and puts the answer into `text`.
Reply look(Session& session, const ListOptions& list, const JobQuery& query, int width, std::string& text) {
  FoundJobs found;
  Reply reply = find_jobs(session, query, found);
  if (!reply) return reply;
  if (!list.sort.empty()) {
    sort_jobs(found.jobs, list.sort, session.io().wall_now());
    if (!list.all && static_cast<int64_t>(found.jobs.size()) > list.limit) {
      found.jobs.resize(static_cast<size_t>(list.limit));
      found.complete = false;
    }
  }
  text = shown(session, list, found, format_of(list.format, session.options().json), width);
  return {};
}

int list_jobs(Session& session, const ListOptions& list) {
  const Result<JobQuery> query = query_of(session, list);
  if (!query) return session.fail(kExitUsage, query.error().message, "usage");
  if (list.watch) {
    const Result<int64_t> interval = parse_duration_seconds(list.interval);
    if (!interval) return session.fail(kExitUsage, "--interval: " + interval.error().message, "usage");
    return watch_screen(
        session, "gpu-cli list", seconds(*interval),
        [&](Session& own, int width, std::string& text) { return look(own, list, *query, width, text); });
  }
  std::string text;
  const Reply reply = look(session, list, *query, session.io().width, text);
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(text);
  return kExitOk;
}

}  // namespace

Action define_list(Grammar& grammar) {
  const auto list = std::make_shared<ListOptions>();
  grammar
      .option("--state", "STATES", &list->states,
              "Only jobs in these states, comma-separated; active: not ended, finished: ended")
      .of({"pending", "scheduled", "running", "completed", "failed", "cancelled", "preempted", "active",
           "finished"})
      .commas();
  grammar.option("--user", "USER", &list->user, "Only jobs submitted by this user or running as this user");
  grammar.option("--name", "NAME", &list->name,
                 "Only jobs with this name; * matches any text, ? any character");
  grammar.option("-l,--label", "K[=V]", &list->labels,
                 "Only jobs with this label; may be repeated, all must match");
  grammar.option("--since", "TIME", &list->since,
                 "Only jobs submitted since: 2h, 2025-01-31 or 2025-01-31T09:00:00Z");
  grammar.option("--limit", "N", &list->limit, "Maximum number of jobs (default: 50)").range(1, 100'000'000);
  grammar.flag("--all", list->all, "No maximum");
  grammar
      .option("--sort", "COLUMNS", &list->sort,
              "Sort by these columns, comma-separated; times, sizes and numbers in descending order; - "
              "before a name reverses its order")
      .of(job_column_keys())
      .commas()
      .completes(Complete::kColumn);
  grammar.option("--columns", "COLUMNS", &list->columns, "Show these columns, comma-separated")
      .of(job_column_keys())
      .commas()
      .completes(Complete::kColumn);
  grammar.flag("--no-header", list->no_header, "Omit titles and remarks");
  declare_format(grammar, list->format);
  grammar.flag("-w,--watch", list->watch, "Refresh continuously until q or Ctrl-C");
  grammar.option("--interval", "SPAN", &list->interval, "With --watch: time between refreshes (default: 2s)");
  grammar.example("gpu-cli list --state active --sort -priority,submitted",
                  "active jobs, lowest priority first");
  grammar.example("gpu-cli list --label team=vision --since 1d -o name", "only ids, for use in a loop");
  return [list](Session& session) { return list_jobs(session, *list); };
}

}  // namespace gpusched::cli
