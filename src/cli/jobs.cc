#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/table.h"
#include "cli/units.h"
#include "cli/verbs.h"

namespace gpusched::cli {
namespace {

constexpr int64_t kPageJobs = 500;

std::string joined(const Json& list, std::string_view separator) {
  std::string out;
  for (const Json& item : list.items()) {
    if (!out.empty()) out += separator;
    out += item.text();
  }
  return out;
}

/// "12s ago (2025-01-31T09:00:00.123Z)", or nothing.
std::string time_text(const Json& value, Time now) {
  const Time time = parse_rfc3339(value.text());
  return time.valid() ? format_relative(time, now) + " (" + value.text() + ")" : "";
}

/// How long the job has run or ran, or nothing when it has not started.
std::string run_time(const Json& job, Time now) {
  const Time started = parse_rfc3339(job["started_at"].text());
  if (!started.valid()) return "";
  const Time ended = parse_rfc3339(job["completed_at"].text());
  const Duration run = (ended.valid() ? ended : now) - started;
  return format_duration(run.ns / 1'000'000'000);
}

std::string number_text(const Json& value) {
  return value.is_number() ? std::to_string(value.integer()) : std::string();
}

/// The number when it is given and not zero.
std::string count_text(const Json& value) {
  return value.integer() != 0 ? std::to_string(value.integer()) : std::string();
}

std::string size_text(const Json& value) {
  return value.integer() > 0 ? format_size_mb(value.integer()) : std::string();
}

/// A word list as one would type it.
std::string command_text(const Json& job) {
  std::string out;
  for (const Json& words : {job["command"], job["args"]}) {
    for (const Json& word : words.items()) {
      const std::string text = word.text();
      const bool plain = !text.empty() && text.find_first_of(" \t\n\"'\\$*?;|&<>()") == std::string::npos;
      if (!out.empty()) out += ' ';
      out += plain ? text : "'" + text + "'";
    }
  }
  return out;
}

std::string id_of(const Json& job) {
  const std::string id = job["id"].text();
  return id.empty() ? job["job_id"].text() : id;
}

/// The state, with why it waits or failed; in the other states the reason says the same again.
std::string state_text(const Json& job) {
  const std::string state = job["state"].text();
  const std::string reason = job["reason"].text();
  const bool telling = state == "pending" || state == "failed";
  return telling && !reason.empty() ? state + " (" + reason + ")" : state;
}

/// A script's first line, with an ellipsis when there is more.
std::string script_text(const Json& job) {
  std::string script = job["script"].text();
  while (script.ends_with('\n')) script.pop_back();
  const size_t line_end = script.find('\n');
  return line_end == std::string::npos ? script : script.substr(0, line_end) + " …";
}

std::string record_text(const Json& job, Time now) {
  Record record;
  record.add("Job", id_of(job));
  record.add("Name", job["name"].text());
  record.add("State", state_text(job));
  record.add("Message", job["message"].text());
  record.add("Exit code", number_text(job["exit_code"]));
  record.add("Signal", count_text(job["signal"]));
  record.add("Tenant", job["tenant_id"].text());
  record.add("Priority", number_text(job["priority"]));
  record.add("GPUs", count_text(job["gpu_count"]));
  record.add("GPU model", job["gpu_model"].text());
  record.add("GPU memory", size_text(job["gpu_memory_mb"]));
  if (job["cpu_cores"].number() > 0) record.add("CPUs", format_cores(job["cpu_cores"].number()));
  record.add("Memory", size_text(job["memory_mb"]));
  record.add("Command", command_text(job));
  record.add("Script", script_text(job));
  record.add("Image", job["image"].text());
  if (const int64_t limit = job["max_runtime_seconds"].integer(); limit > 0) {
    record.add("Time limit", format_duration(limit));
  }
  record.add("Retries", count_text(job["retries"]));
  record.add("Node", job["node_name"].text());
  record.add("On", joined(job["allocated_gpus"], ", "));
  record.add("Attempts", count_text(job["attempts"]));
  record.add("In line", count_text(job["queue_position"]));
  if (job["queue_position"].integer() > 0) record.add("Starts in", job["estimated_wait"].text());
  record.add("Submitted", time_text(job["submitted_at"], now));
  record.add("Started", time_text(job["started_at"], now));
  record.add("Ended", time_text(job["completed_at"], now));
  record.add("Ran", run_time(job, now));
  return record.render();
}

struct ListOptions {
  std::string state;
  int64_t limit = 50;
  bool all = false;
};

std::string list_path(const Options& options, const ListOptions& list, int64_t limit, int64_t offset) {
  std::string path = "/jobs?limit=" + std::to_string(limit) + "&offset=" + std::to_string(offset);
  if (!list.state.empty()) path += "&state=" + url_encoded(list.state);
  if (!options.tenant_id.empty()) path += "&tenant_id=" + url_encoded(options.tenant_id);
  return path;
}

std::string jobs_text(const std::vector<Json>& jobs, const CliIo& io) {
  Table table({{.title = "ID"},
               {.title = "NAME", .may_shrink = true},
               {.title = "STATE"},
               {.title = "GPUS", .right = true},
               {.title = "PRIORITY", .right = true, .drop_order = 2},
               {.title = "TENANT", .may_shrink = true, .drop_order = 3},
               {.title = "SUBMITTED", .right = true, .drop_order = 1},
               {.title = "RAN", .right = true, .drop_order = 4}});
  const Time now = io.wall_now();
  for (const Json& job : jobs) {
    const Time submitted = parse_rfc3339(job["submitted_at"].text());
    table.add({id_of(job), job["name"].text(), job["state"].text(), number_text(job["gpu_count"]),
               number_text(job["priority"]), job["tenant_id"].text(),
               submitted.valid() ? format_relative(submitted, now) : "", run_time(job, now)});
  }
  return table.render(io.width);
}

int list_jobs(Session& session, const ListOptions& list) {
  const Options& options = session.options();
  std::vector<Json> jobs;
  int64_t total = 0;
  const int64_t wanted = list.all ? INT64_MAX : list.limit;
  while (static_cast<int64_t>(jobs.size()) < wanted) {
    const auto have = static_cast<int64_t>(jobs.size());
    const Reply page = session.get(list_path(options, list, std::min(kPageJobs, wanted - have), have));
    if (!page) return session.fail(*page.trouble);
    const std::vector<Json> items = page.json["jobs"].items();
    jobs.insert(jobs.end(), items.begin(), items.end());
    total = page.json["total"].integer();
    if (items.empty() || static_cast<int64_t>(jobs.size()) >= total) break;
  }
  if (options.json) {
    std::string text = "{\"jobs\":[";
    for (size_t i = 0; i < jobs.size(); ++i) text += (i > 0 ? "," : "") + jobs[i].serialize();
    session.io().out(text + "],\"total\":" + std::to_string(total) + "}\n");
    return kExitOk;
  }
  if (jobs.empty()) {
    session.io().out("No jobs.\n");
    return kExitOk;
  }
  session.io().out(jobs_text(jobs, session.io()));
  const auto shown = static_cast<int64_t>(jobs.size());
  if (shown < total) {
    session.io().out("The newest " + std::to_string(shown) + " of " + std::to_string(total) +
                     "; --all or --limit N shows more.\n");
  }
  return kExitOk;
}

int get_job(Session& session, const std::string& job) {
  const Reply reply = session.get("/jobs/" + url_encoded(job));
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply)
                                          : record_text(reply.json, session.io().wall_now()));
  return kExitOk;
}

int cancel_jobs(Session& session, const std::vector<std::string>& jobs) {
  int exit_code = kExitOk;
  for (const std::string& job : jobs) {
    const Reply reply = session.send("DELETE", "/jobs/" + url_encoded(job));
    if (!reply) {
      // The others are cancelled all the same, as far as somebody answers.
      exit_code = session.fail(*reply.trouble);
      if (exit_code == kExitUnreachable) return exit_code;
      continue;
    }
    session.io().out(session.options().json ? json_line(reply) : job + " cancelled\n");
  }
  return exit_code;
}

int explain_job(Session& session, const std::string& job) {
  const Reply reply = session.get("/jobs/" + url_encoded(job) + "/explain");
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  Record record;
  record.add("Job", job);
  record.add("State", reply.json["state"].text());
  record.add("Reason", reply.json["reason"].text());
  record.add("Why", reply.json["message"].text());
  record.add("Lifted by", joined(reply.json["lifted_by"], ", "));
  record.add("In line", count_text(reply.json["queue_position"]));
  session.io().out(record.render());
  return kExitOk;
}

}  // namespace

Action define_list(Grammar& grammar) {
  const auto list = std::make_shared<ListOptions>();
  grammar.option("--state", "STATE", &list->state, "Only jobs in this state")
      .of({"pending", "scheduled", "running", "completed", "failed", "cancelled", "preempted"});
  grammar.option("--limit", "N", &list->limit, "At most so many (50)").range(1, 1'000'000);
  grammar.flag("--all", list->all, "All that there are");
  return [list](Session& session) { return list_jobs(session, *list); };
}

Action define_get(Grammar& grammar) {
  const auto job = std::make_shared<std::string>();
  grammar.argument("JOB", job.get(), "Its id, such as job-12").completes(Complete::kJob);
  return [job](Session& session) { return get_job(session, *job); };
}

Action define_cancel(Grammar& grammar) {
  const auto jobs = std::make_shared<std::vector<std::string>>();
  grammar.argument("JOB", jobs.get(), "Their ids").completes(Complete::kJob);
  grammar.details("Refusals do not stop it; the exit code tells of the last.");
  return [jobs](Session& session) { return cancel_jobs(session, *jobs); };
}

Action define_explain(Grammar& grammar) {
  const auto job = std::make_shared<std::string>();
  grammar.argument("JOB", job.get(), "Its id").completes(Complete::kJob);
  return [job](Session& session) { return explain_job(session, *job); };
}

}  // namespace gpusched::cli
