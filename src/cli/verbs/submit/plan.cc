#include <memory>

#include "cli/commands.h"
#include "cli/framework/tenant_names.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"
#include "cli/verbs/submit/estimates.h"
#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

std::string joined(const Json& list, std::string_view separator) {
  std::string out;
  for (const Json& item : list.items()) {
    if (!out.empty()) out += separator;
    out += item.text();
  }
  return out;
}

std::string displaced_text(const Json& list) {
  std::string out;
  for (const Json& one : list.items()) {
    const std::string job = one["job_id"].text();
    const int64_t gpus = one["gpu_count"].integer();
    out += (out.empty() ? "" : ", ") + (job.empty() ? std::string("a job of another tenant") : job) + " (" +
           std::to_string(gpus) + (gpus == 1 ? " GPU)" : " GPUs)");
  }
  return out;
}

/// "median: 2h05m; 90th percentile: 3h"
std::string run_text(const Json& plan) {
  if (!plan["run_p50_ms"].is_number()) return "";
  return "median: " + format_duration(plan["run_p50_ms"].integer() / 1000) +
         "; 90th percentile: " + format_duration(plan["run_p90_ms"].integer() / 1000);
}

std::string cost_text(const Json& plan) {
  std::string out;
  if (plan["gpu_seconds_reserved"].is_number())
    out = std::to_string(plan["gpu_seconds_reserved"].integer()) + " GPU-seconds at most";
  if (plan["gpu_seconds_expected"].is_number()) {
    out += (out.empty() ? "" : ", ") + std::to_string(plan["gpu_seconds_expected"].integer()) +
           (out.empty() ? " GPU-seconds expected" : " expected");
  }
  return out;
}

std::string quota_text(Session& session, const Json& list) {
  std::string out;
  for (const Json& one : with_tenant_names(session, list.items())) {
    const std::string name = one["tenant_name"].text();
    out += (out.empty() ? "" : ", ") + std::to_string(one["used_after"].integer()) + " of " +
           std::to_string(one["limit"].integer()) + " " + one["resource"].text() + " of " +
           (name.empty() ? one["tenant_id"].text() : name);
  }
  return out;
}

int plan_job(Session& session, SubmitOptions& submit, const Grammar& grammar) {
  const Result<std::string> body = submission_body(session, submit, grammar);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  const Reply reply = session.send("POST", "/jobs:plan", *body);
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  const Json& plan = reply.json;
  Record record;
  record.add("Starts", start_text(plan, session.io().wall_now()));
  record.add("Node", plan["node_name"].text());
  record.add("On", joined(plan["gpus"], ", "));
  record.add("Displaces", displaced_text(plan["displaces"]));
  record.add("Reason", plan["reason"].text());
  record.add("Why", with_local_times(plan["message"].text()));
  add_outlook(plan, record);
  if (!has_no_start(plan)) {
    record.add("Runs for", run_text(plan));
    record.add("Costs", cost_text(plan));
    record.add("Quota", quota_text(session, plan["quota"]));
  }
  session.io().out(record.render(session.io().line_width()));
  return kExitOk;
}

}  // namespace

Action define_plan(Grammar& grammar) {
  const auto submit = std::make_shared<SubmitOptions>();
  declare_submit_options(grammar, *submit);
  declare_submission(grammar, *submit);
  grammar.details(
      "Accepts the options of `gpu-cli submit` and submits nothing: the scheduler runs its own planner "
      "forward on a copy of its state, with likely run times. What submit would refuse is refused with the "
      "same error. The answer is valid for this moment only: jobs submitted later may start first.");
  grammar.details(
      "`Now with` lists the smallest changes to the request that would let the job start at once, the "
      "cheapest first. With `--tenant-id` only jobs of that tenant are named.");
  grammar.example("gpu-cli plan --gpus 8 --time 4h -- ./train.sh", "would it start now, where, or when?");
  return [submit, &grammar](Session& session) {
    if (submit->wait) {
      return session.fail(kExitUsage, "--wait: a plan submits nothing to wait for", "usage");
    }
    return plan_job(session, *submit, grammar);
  };
}

}  // namespace gpusched::cli
