#include <cmath>
#include <memory>
#include <tuple>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_columns.h"
#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

using Jobs = std::vector<std::string>;

/// Does `call` for each job; a refusal does not stop it. The exit code tells of the last one.
int for_each_job(Session& session, const Jobs& jobs, const std::string& done,
                 const std::function<Reply(const std::string& path)>& call) {
  int exit_code = kExitOk;
  for (const std::string& job : jobs) {
    const Reply reply = call("/v1/jobs/" + url_encoded(job));
    if (!reply) {
      exit_code = session.fail(about_job(job, *reply.trouble));
      if (exit_code == kExitUnreachable) return exit_code;
      continue;
    }
    session.io().out(session.options().json ? json_line(reply) : job + " " + done + "\n");
  }
  return exit_code;
}

/// A command that does one thing to each of its jobs.
Action about_jobs(Grammar& grammar, const std::string& what, const std::string& done) {
  const auto jobs = std::make_shared<Jobs>();
  grammar.argument("JOB", jobs.get(), "Job ids; 'job-46[10-20,30]' names several elements of an array")
      .completes(Complete::kJob);
  return [jobs, what, done](Session& session) {
    return for_each_job(session, *jobs, done, [&](const std::string& path) {
      return session.send("POST", path + "/" + what, "{}");
    });
  };
}

struct UpdateOptions {
  Jobs jobs;
  std::optional<int64_t> priority;
  std::string time_limit;
  std::string name;
  TextValues texts;
  std::string begin, deadline;
  std::optional<int64_t> gpus;
  std::string gpu_model, gpu_memory, memory;
  std::optional<double> cpus;
};

/// "none" ends it, else it moves.
Result<Unit> add_moment(const std::string& option, const std::string& text, const std::string& at,
                        const std::string& after, Time now, JsonObjectWriter& body) {
  if (text.empty()) return Unit{};
  if (text == "none") {
    body.add(after, int64_t{0});
    return Unit{};
  }
  const Result<Moment> moment = parse_moment(option, text, now);
  if (!moment) return moment.error();
  if (moment->at.empty()) {
    body.add(after, moment->after_seconds * 1'000);
  } else {
    body.add(at, moment->at);
  }
  return Unit{};
}

/// Adds the needs of the job.
Result<Unit> add_needs(const UpdateOptions& update, JsonObjectWriter& body) {
  if (update.gpus) body.add("gpu_count", *update.gpus);
  if (!update.gpu_model.empty()) body.add("gpu_model", update.gpu_model);
  if (update.cpus) body.add("cpu_milli", static_cast<int64_t>(std::llround(*update.cpus * 1'000)));
  for (const auto& [option, text, field] : {std::tuple("--gpu-memory", update.gpu_memory, "gpu_memory_mb"),
                                            std::tuple("--mem", update.memory, "memory_mb")}) {
    if (text.empty()) continue;
    const Result<int64_t> size = parse_size_mb(text);
    if (!size)
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = std::string(option) + ": " + size.error().message};
    body.add(field, *size);
  }
  return Unit{};
}

int update_jobs(Session& session, const UpdateOptions& update) {
  JsonObjectWriter body;
  if (update.priority) body.add("priority", *update.priority);
  if (update.time_limit == "none") {
    body.add("max_runtime_ms", int64_t{0});
  } else if (!update.time_limit.empty()) {
    const Result<int64_t> limit = parse_duration_seconds(update.time_limit);
    if (!limit) return session.fail(kExitUsage, "--time: " + limit.error().message, "usage");
    body.add("max_runtime_ms", *limit * 1'000);
  }
  if (!update.name.empty()) body.add("name", update.name);
  add_texts(update.texts, body);
  const Time now = session.io().wall_now();
  Result<Unit> added = add_moment("--begin", update.begin, "begin_at", "begin_after_ms", now, body);
  if (added) added = add_moment("--deadline", update.deadline, "deadline", "deadline_after_ms", now, body);
  if (added) added = add_needs(update, body);
  if (!added) return session.fail(kExitUsage, added.error().message, "usage");
  if (body.empty()) {
    return session.fail(
        kExitUsage,
        "no change was given; use --priority, --time, --name or another option of gpu-cli update --help",
        "usage");
  }
  return for_each_job(session, update.jobs, "updated",
                      [&](const std::string& path) { return session.send("PATCH", path, body.text()); });
}

}  // namespace

Action define_update(Grammar& grammar) {
  const auto update = std::make_shared<UpdateOptions>();
  grammar.argument("JOB", &update->jobs, "Job ids").completes(Complete::kJob);
  grammar.option("--priority", "N", &update->priority,
                 "New priority, higher starts earlier; only for pending jobs");
  grammar.option("-t,--time", "SPAN", &update->time_limit,
                 "New time limit, counted from the start; none removes it");
  grammar.option("--name", "NAME", &update->name, "New name");
  for (std::size_t i = 0; i < update->texts.size(); ++i) {
    const TextOption& text = kTextOptions[i];
    if (text.update_help.empty()) continue;
    grammar.option(text.flag, std::string(text.value), &update->texts[i], std::string(text.update_help));
  }
  grammar.option(
      "--begin", "WHEN", &update->begin,
      "Earliest start, such as +2h or 2025-01-31T09:00:00Z; none removes it; only for pending jobs");
  grammar.option("--deadline", "WHEN", &update->deadline,
                 "Give up the job if it has not started by then; none removes it");
  grammar.option("--gpus", "N", &update->gpus, "Number of GPUs; only for pending jobs, as the options below")
      .range(0, 1'000'000);
  grammar.option("--gpu-model", "MODEL", &update->gpu_model, "Only this model");
  grammar.option("--gpu-memory", "SIZE", &update->gpu_memory, "Total memory of all GPUs");
  grammar.option("--cpus", "N", &update->cpus, "CPU cores");
  grammar.option("--mem", "SIZE", &update->memory, "Memory");
  grammar.details(
      "Options that are not given keep their values. Changed resources are checked as for a new job. "
      "Continues after a refusal; the exit code is that of the last one.");
  return [update](Session& session) { return update_jobs(session, *update); };
}

Action define_hold(Grammar& grammar) {
  grammar.details("A held job keeps its priority and age, and waits until it is released.");
  return about_jobs(grammar, "hold", "held");
}

Action define_release(Grammar& grammar) { return about_jobs(grammar, "release", "released"); }

Action define_requeue(Grammar& grammar) {
  grammar.details(
      "The attempt is stopped as by cancel, and the job is pending again, with its priority and age. No "
      "retry is used up.");
  return about_jobs(grammar, "requeue", "requeued");
}

}  // namespace gpusched::cli
