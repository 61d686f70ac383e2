#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/framework/tenant_names.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/terminal/screen.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_columns.h"
#include "cli/verbs/jobs/job_fold.h"
#include "cli/verbs/jobs/job_query.h"

namespace gpusched::cli {
namespace {

constexpr int kWideWidth = 1'000;
constexpr int64_t kScreenJobsMax = 10'000;  // For each state, for a screen that shows some dozens.
constexpr int64_t kRecentJobsMax = 10'000;  // For each state: the last hour's are looked for among them.
constexpr Duration kRecent = seconds(3'600);
constexpr int kFrameRows = 4;  // Titles, two remarks, and the shell's next line.
constexpr int kRowsMin = 3;

struct ListOptions {
  std::string states;
  std::optional<int64_t> limit;
  bool all = false;
  bool elements = false;
  std::string sort;
  std::string columns;
  std::string format;
  std::string user;
  bool me = false;
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
  return {"id", "name", "user", "state", "gpus", "ran", "where"};
}

bool is_for_programs(Format format) {
  return format == Format::kJson || format == Format::kYaml || format == Format::kName;
}

/// Whether people look without having said of when: at what is to come, what runs, and what has just ended.
bool is_present_view(const ListOptions& list, Format format) {
  return !is_for_programs(format) && !list.all && list.states.empty() && list.since.empty();
}

/// Lines that a terminal has room for; nothing: there is no end.
std::optional<std::size_t> rows_of_screen(const Session& session, const ListOptions& list) {
  const CliIo& io = session.io();
  const Format format = format_of(list.format, session.options().json);
  if (!io.out_is_terminal || is_for_programs(format) || list.all || list.limit || list.no_header)
    return std::nullopt;  // Without remarks nobody would know what is missing.
  return static_cast<std::size_t>(std::max(kRowsMin, io.height - kFrameRows));
}

Result<JobQuery> query_of(const Session& session, const ListOptions& list) {
  const Result<std::string> user = user_filter(session, list.user, list.me);
  if (!user) return user.error();
  JobQuery query{.tenant = session.options().tenant_id, .user = *user, .name = list.name};
  Result<std::vector<std::string>> states = parse_states(list.states);
  if (!states) return states.error();
  query.states = std::move(*states);
  query.labels = label_filters(list.labels);
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
    // Folding looks at these.
    if (format != Format::kName) keys.insert(keys.end(), {"id", "name", "state", "ran"});
    if (!query.states.empty()) keys.emplace_back("state");
    query.fields = fields_of(keys);
  }
  // The order may put the oldest one first: all must be known then.
  if (list.all || !list.sort.empty()) return query;
  if (list.limit) {
    // Folded, more jobs may be fewer lines.
    const bool folds = !is_for_programs(format) && !list.elements;
    query.limit = folds ? std::max(*list.limit, kScreenJobsMax) : *list.limit;
  } else if (rows_of_screen(session, list)) {
    query.limit = kScreenJobsMax;
  }
  return query;
}

/// Finds jobs that have not ended, newest first; then those of the last hour, the latest end first.
Reply find_present(Session& session, JobQuery query, FoundJobs& found) {
  query.states = active_states();
  Reply reply = find_jobs(session, query, found);
  if (!reply) return reply;
  FoundJobs ended;
  query.states = finished_states();
  query.ended_since = session.io().wall_now() - kRecent;
  query.looked_max = kRecentJobsMax;
  reply = find_jobs(session, query, ended);
  if (!reply) return reply;
  sort_jobs(ended.jobs, "ended", session.io().wall_now());
  found.jobs.insert(found.jobs.end(), ended.jobs.begin(), ended.jobs.end());
  found.total = static_cast<int64_t>(found.jobs.size());
  return {};
}

std::string objects_text(const FoundJobs& found) {
  std::string text = "{\"jobs\":[";
  for (size_t i = 0; i < found.jobs.size(); ++i) text += (i > 0 ? "," : "") + found.jobs[i].serialize();
  return text + "],\"total\":" + std::to_string(found.total) + "}\n";
}

/// The text for a list without jobs.
std::string nothing_text(const ListOptions& list, Format format) {
  if (list.no_header) return "";
  const bool filtered = list.me || !list.user.empty() || !list.name.empty() || !list.labels.empty();
  if (!is_present_view(list, format) || filtered) return "No jobs.\n";
  return "No jobs wait, run or ended in the last hour; gpu-cli list --all shows older ones.\n";
}

std::string table_text(Session& session, const ListOptions& list, FoundJobs& found,
                       const std::vector<std::string>& columns, int width) {
  const CliIo& io = session.io();
  const Format format = format_of(list.format, false);
  if (found.jobs.empty()) return nothing_text(list, format);
  const std::size_t lines = found.jobs.size();
  const std::optional<std::size_t> rows = rows_of_screen(session, list);
  if (rows && lines > *rows) found.jobs.resize(*rows);
  found.jobs = with_tenant_names(session, found.jobs);
  const bool unlimited = format == Format::kWide && !io.out_is_terminal;
  const auto rendered = [&] {
    Table table = job_table(found.jobs, columns, io.wall_now());
    table.offer_wide();
    if (list.no_header) table.hide_titles();
    return table.render(unlimited ? kWideWidth : width, colored(session.options(), io));
  };
  std::string text = rendered();
  // On a narrow terminal a job takes more than one line.
  const auto used = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  if (rows && used > *rows + 1) {
    found.jobs.resize(std::max<std::size_t>(1, *rows * found.jobs.size() / used));
    text = rendered();
  }
  if (list.no_header) return text;
  if (lines > found.jobs.size()) {
    return text + std::to_string(lines - found.jobs.size()) + (found.complete ? "" : " or more") +
           " further lines do not fit on the screen; gpu-cli list | less shows all\n";
  }
  if (found.complete) return text;
  if (!list.limit) return text + "There are more; gpu-cli list | less shows all\n";
  text += "The newest " + std::to_string(found.jobs.size());
  if (found.total > static_cast<int64_t>(found.jobs.size())) text += " of " + std::to_string(found.total);
  return text + "; leave out --limit for all.\n";
}

std::string shown(Session& session, const ListOptions& list, FoundJobs& found, Format format, int width) {
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
  return table_text(session, list, found, columns_of(list, format), width);
}

/// Asks and puts the answer into `text`.
Reply look(Session& session, const ListOptions& list, const JobQuery& query, int width, std::string& text) {
  const Format format = format_of(list.format, session.options().json);
  FoundJobs found;
  Reply reply =
      is_present_view(list, format) ? find_present(session, query, found) : find_jobs(session, query, found);
  if (!reply) return reply;
  if (!list.sort.empty()) sort_jobs(found.jobs, list.sort, session.io().wall_now());
  if (!is_for_programs(format) && !list.elements) found.jobs = fold_arrays(found.jobs);
  if (list.limit && !list.all && static_cast<int64_t>(found.jobs.size()) > *list.limit) {
    found.jobs.resize(static_cast<size_t>(*list.limit));
    found.complete = false;
  }
  text = shown(session, list, found, format, width);
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
      .of(state_words())
      .commas()
      .alias("--states");
  grammar.option("-u,--user", "USER", &list->user, "Only jobs submitted by this user or running as this user")
      .alias("--users");
  grammar.flag("--me", list->me, "Only your own jobs: those of your login name");
  grammar.option("--name", "NAME", &list->name,
                 "Only jobs with this name; * matches any text, ? any character");
  grammar.option("-l,--label", "K[=V]", &list->labels,
                 "Only jobs with this label; may be repeated, all must match");
  grammar.option("--since", "TIME", &list->since,
                 "Only jobs submitted since: 2h, 09:30, yesterday, 2025-01-31 or 2025-01-31T09:00:00Z");
  grammar.option("--limit", "N", &list->limit, "Maximum number of lines").range(1, 100'000'000);
  grammar.flag("--all", list->all, "All jobs that are kept, and more lines than the screen has");
  grammar.flag("--elements", list->elements, "One line for each element of an array, not one for all");
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
  grammar.details(
      "Without `--state`, `--since` and `--all` the table has the jobs that have not ended, then those that "
      "ended in the last hour (looked for among the newest 10,000 of each state). On a terminal it ends with "
      "the screen's height, and says how many lines are missing; in a pipe it has all. `-o name`, `-o json` "
      "and `-o yaml` are for programs: they have all jobs that match, in every state unless `--state` says "
      "otherwise.");
  grammar.details(
      "NODE/REASON is the node of a job that runs or ran, and the reason why one waits or failed. The "
      "elements of an array are one line with their numbers. A job that was cancelled is `stopping` until "
      "its processes have ended. One that no registered node could ever run is `pending (never)`; `--state "
      "never` lists those.");
  grammar.example("gpu-cli cancel $(gpu-cli list --name 'sweep-*' --state active -o name)",
                  "end all of them");
  grammar.example("gpu-cli list --state active --sort -priority,submitted",
                  "active jobs, lowest priority first");
  grammar.example("gpu-cli list --label team=vision --since 1d -o name", "only ids, for use in a loop");
  return [list](Session& session) { return list_jobs(session, *list); };
}

}  // namespace gpusched::cli
