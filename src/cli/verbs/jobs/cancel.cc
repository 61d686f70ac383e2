#include <algorithm>
#include <memory>
#include <set>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/verbs/jobs/job_columns.h"
#include "cli/verbs/jobs/job_query.h"

namespace gpusched::cli {
namespace {

constexpr std::size_t kBatch = 1'000;  // Most that one request may name.

struct CancelOptions {
  std::vector<std::string> jobs;
  std::string user, states, name;
  std::vector<std::string> labels;
  bool me = false;
  bool all = false;
  bool yes = false;

  bool chooses() const {
    return all || me || !user.empty() || !states.empty() || !name.empty() || !labels.empty();
  }
};

bool stops(const Json& job) { return job["state"].text() != "pending"; }

std::string counted(std::size_t count, const std::string& what) { return std::to_string(count) + " " + what; }

/// "12 jobs (10 wait, 2 run)"
std::string summary(const std::vector<Json>& jobs) {
  const auto running = static_cast<std::size_t>(std::ranges::count_if(jobs, stops));
  return counted(jobs.size(), jobs.size() == 1 ? "job (" : "jobs (") +
         counted(jobs.size() - running, "wait, ") + counted(running, "run)");
}

void tell(const Session& session, const std::string& job, bool ended) {
  session.io().out(job + (ended ? " cancelled\n" : " is being stopped\n"));
}

/// Whether the refused job has ended because its array was cancelled a moment ago.
bool ended_with(Session& session, const std::string& job, const std::set<std::string>& arrays) {
  if (arrays.empty()) return false;
  const Reply record = session.get("/jobs/" + url_encoded(job));
  return record && arrays.contains(record.json["array_id"].text());
}

/// Cancels jobs one after the other; the others are cancelled all the same when one is refused.
int cancel_each(Session& session, const std::vector<std::string>& jobs) {
  int exit_code = kExitOk;
  std::set<std::string> arrays;
  for (const std::string& job : jobs) {
    const bool json = session.options().json;
    const Reply reply = json ? session.send("DELETE", "/jobs/" + url_encoded(job))
                             : session.send("POST", "/v1/jobs/" + url_encoded(job) + "/cancel", "{}");
    if (reply) {
      if (json) {
        session.io().out(json_line(reply));
        continue;
      }
      if (reply.json["array"].is_object()) arrays.insert(job_id_of(reply.json));
      tell(session, job, is_final(reply.json));
      continue;
    }
    if (reply.trouble->code == "job_finished" && ended_with(session, job, arrays)) {
      if (!json) tell(session, job, true);
      continue;
    }
    exit_code = session.fail(about_job(job, *reply.trouble));
    if (exit_code == kExitUnreachable) return exit_code;
  }
  return exit_code;
}

/// Cancels the chosen jobs, many with one request.
int cancel_batches(Session& session, const std::vector<Json>& jobs) {
  int exit_code = kExitOk;
  for (std::size_t begin = 0; begin < jobs.size(); begin += kBatch) {
    const std::size_t end = std::min(begin + kBatch, jobs.size());
    std::vector<std::string> ids;
    for (std::size_t i = begin; i < end; ++i) ids.push_back(job_id_of(jobs[i]));
    JsonObjectWriter body;
    body.add("job_ids", ids);
    const Reply reply = session.send("POST", "/v1/jobs:cancel", body.text());
    if (!reply) return session.fail(*reply.trouble);
    if (session.options().json) {
      session.io().out(json_line(reply));
    }
    const std::vector<Json> results = reply.json["results"].items();
    for (std::size_t i = 0; i < results.size() && begin + i < end; ++i) {
      const std::string code = results[i]["code"].text();
      // It ended while it was chosen: there is nothing left to do.
      if (code == "job_finished") continue;
      if (!code.empty()) {
        exit_code = session.fail(about_job(
            ids[i], {.exit_code = kExitRefused, .sentence = results[i]["message"].text(), .code = code}));
      } else if (!session.options().json) {
        tell(session, ids[i], !stops(jobs[begin + i]));
      }
    }
  }
  return exit_code;
}

Result<JobQuery> query_of(const Session& session, const CancelOptions& cancel) {
  const Result<std::string> user = user_filter(session, cancel.user, cancel.me);
  if (!user) return user.error();
  JobQuery query{.tenant = session.options().tenant_id, .user = *user, .name = cancel.name};
  Result<std::vector<std::string>> states = parse_states(cancel.states.empty() ? "active" : cancel.states);
  if (!states) return states.error();
  query.states = std::move(*states);
  query.labels = label_filters(cancel.labels);
  query.fields = fields_of({"id", "state"});
  return query;
}

/// Asks somebody at a terminal whether to go on; nothing: there is nobody to ask.
std::optional<bool> ask(const Session& session, const std::vector<Json>& jobs) {
  const CliIo& io = session.io();
  if (!io.read_answer || !io.err_is_terminal) return std::nullopt;
  io.err("Cancel " + summary(jobs) + "? [y/N] ");
  const std::optional<std::string> answer = io.read_answer();
  if (!answer) return std::nullopt;
  return *answer == "y" || *answer == "Y" || *answer == "yes";
}

int cancel_chosen(Session& session, const CancelOptions& cancel) {
  const Result<JobQuery> query = query_of(session, cancel);
  if (!query) return session.fail(kExitUsage, query.error().message, "usage");
  FoundJobs found;
  const Reply reply = find_jobs(session, *query, found);
  if (!reply) return session.fail(*reply.trouble);
  // An array takes its elements along.
  std::set<std::string> arrays;
  for (const Json& job : found.jobs) {
    if (job["array"].is_object()) arrays.insert(job_id_of(job));
  }
  std::erase_if(found.jobs, [&](const Json& job) { return arrays.contains(job["array_id"].text()); });
  if (found.jobs.empty()) {
    session.io().err("gpu-cli: no job matches; nothing was cancelled\n");
    return kExitOk;
  }
  const std::optional<bool> agreed = cancel.yes ? std::optional(true) : ask(session, found.jobs);
  if (!agreed) {
    return session.fail(
        kExitUsage, "this would cancel " + summary(found.jobs) + "; repeat it with --yes to do so", "usage");
  }
  if (!*agreed) {
    session.io().err("gpu-cli: nothing was cancelled\n");
    return kExitOk;
  }
  return cancel_batches(session, found.jobs);
}

int cancel_jobs(Session& session, const CancelOptions& cancel) {
  if (cancel.jobs.empty() && !cancel.chooses()) {
    return session.fail(kExitUsage,
                        "no job was named; give ids such as job-12, or select jobs with --me, --user, "
                        "--state, --name, --label or --all",
                        "usage");
  }
  if (!cancel.jobs.empty() && cancel.chooses()) {
    return session.fail(kExitUsage, "give either ids or --user, --state, --name, --label and --all; not both",
                        "usage");
  }
  if (cancel.jobs.empty()) return cancel_chosen(session, cancel);
  return cancel_each(session, cancel.jobs);
}

}  // namespace

Action define_cancel(Grammar& grammar) {
  const auto cancel = std::make_shared<CancelOptions>();
  grammar
      .argument("JOB", &cancel->jobs,
                "Job ids, such as job-12; job-46[3] is an element of an array, 'job-46[10-20,30]' several")
      .optional()
      .completes(Complete::kJob);
  grammar.option("-u,--user", "USER", &cancel->user, "Jobs submitted by this user or running as this user");
  grammar.flag("--me", cancel->me, "Your own jobs: those of your login name");
  grammar
      .option("--state", "STATES", &cancel->states,
              "Jobs in these states, comma-separated (default: all that have not ended)")
      .of({"pending", "held", "never", "scheduled", "running", "stopping", "preempted", "active"})
      .commas();
  grammar.option("--name", "NAME", &cancel->name, "Jobs with this name; * matches any text, ? any character");
  grammar.option("-l,--label", "K[=V]", &cancel->labels,
                 "Jobs with this label; may be repeated, all must match");
  grammar.flag("--all", cancel->all, "All jobs that have not ended and that you may see");
  grammar.flag("-y,--yes", cancel->yes,
               "Do not ask for confirmation before cancelling the jobs that these options select");
  grammar.details(
      "A waiting job is cancelled at once. A running one \"is being stopped\": it gets SIGTERM, then "
      "SIGKILL, and has ended when `gpu-cli wait` says so. Cancelling an array cancels its elements.");
  grammar.details(
      "Without ids the options select the jobs; several options must all match. On a terminal gpu-cli asks "
      "for confirmation, elsewhere it needs `--yes`. Continues after a refusal; the exit code is that of the "
      "last one.");
  grammar.example("gpu-cli cancel job-12 'job-46[10-20]'", "a job, and eleven elements of an array");
  grammar.example("gpu-cli cancel --user ada --state pending", "ada's waiting jobs, after confirmation");
  return [cancel](Session& session) { return cancel_jobs(session, *cancel); };
}

}  // namespace gpusched::cli
