// HostBackend: explanations and plans, which are answered from a copy of the state at the host's forecast
// service.
#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>
#include <vector>

#include "api/backend/host_backend.h"
#include "api/backend/unix_users.h"
#include "api/contract/names.h"
#include "api/views/forecast_views.h"
#include "api/views/job_sentences.h"
#include "api/views/state_views.h"
#include "api/views/tenant_visibility.h"
#include "base/limits.h"
#include "base/text/civil_time.h"
#include "forecast/changes.h"
#include "host/core/refusals.h"
#include "machines/machines.h"

namespace gpusched::api {
namespace {

/// Changed requests that are shown of each job.
constexpr std::size_t kChangesShown = 3;
/// For what is tried for one answer, beside its forecast.
constexpr uint64_t kTrialWork = 100'000;

/// The reasons of one job's class as views have them.
std::vector<WaitReason> reasons_for(const forecast::World& world, const Job& job) {
  std::vector<WaitReason> reasons(job.job_class + 1);
  reasons[job.job_class] = world.planner().reason(job.job_class);
  return reasons;
}

std::vector<ChangeView> changes_of(forecast::World& scratch, JobId job, bool sees_all) {
  std::vector<ChangeView> out;
  forecast::Work work{.left = kTrialWork};
  for (const forecast::Change& change : forecast::smallest_changes(scratch, job, kChangesShown, work))
    out.push_back(view_of(scratch.state(), change, sees_all));
  return out;
}

void add_start(const State& state, const PlanGroup& group, PlanView& out) {
  const MemberPlacement& member = group.members.front();
  const Node& node = state.node_at(member.node);
  out.node_name = node.name;
  for (uint64_t mask = member.device_mask; mask != 0; mask &= mask - 1)
    out.gpus.push_back(gpu_name(node.name, static_cast<uint32_t>(std::countr_zero(mask))));
}

/// Adds the jobs that the planner would end for it.
void add_displaced(const State& state, const PlanGroup& group, const Viewer& viewer, PlanView& out) {
  for (const Preemption& victim : group.preemptions) {
    const Job* job = state.jobs.find(victim.job);
    const Attempt* attempt = state.find_attempt(victim.job, victim.attempt);
    if (job == nullptr || attempt == nullptr) continue;
    int64_t gpus = 0;
    for (const Member& member : attempt->members) gpus += std::popcount(member.device_mask);
    out.displaces.push_back(
        {.job = viewer.sees(state, victim.job) ? victim.job : JobId{}, .gpu_count = gpus});
  }
}

void add_cost(const State& state, const Job& job, const predict::RunTimes& known, const Viewer& viewer,
              PlanView& out) {
  const Amount amount = total_of(state.class_of(job).parts);
  const auto gpu_seconds = [&](Duration run) { return amount.gpus * ((run.ms() + 999) / 1000); };
  if (job.max_runtime.ns > 0) out.gpu_seconds_reserved = gpu_seconds(job.max_runtime);
  if (!known.empty()) {
    out.run_p50 = milliseconds(known.quantile_ms(500));
    out.run_p90 = milliseconds(known.quantile_ms(900));
    out.gpu_seconds_expected = gpu_seconds(*out.run_p50);
  }
  for (const Tenant* at = state.find_tenant(job.tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    if (!viewer.sees_tenant(state, at->id)) continue;
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t limit = at->limits.get(resource);
      if (limit == Limits::kUnlimited) continue;
      out.quota.push_back({.tenant = at->id,
                           .resource = field_name(resource),
                           .used_after = amount_of(at->usage, resource) + amount_of(amount, resource),
                           .limit = limit});
    }
  }
}

/// Answers from the world, to which the job was submitted.
PlanView plan_view(ForecastService::Table& table, forecast::World& world, const forecast::Trial& trial,
                   const Viewer& viewer) {
  const State& state = world.state();
  const Job& job = state.job_at(trial.job);
  const Job& subject = trial.subject.valid() ? state.job_at(trial.subject) : job;
  PlanView out{.tenant = job.tenant};
  out.starts_now = trial.start.has_value() && trial.start->preemptions.empty();
  add_cost(state, job, table.run_times().known(state, job), viewer, out);
  if (trial.start.has_value()) {
    add_start(state, *trial.start, out);
    add_displaced(state, *trial.start, viewer, out);
  }
  if (out.starts_now) {
    out.message = "would start now on node " + out.node_name;
    out.estimate = StartEstimateView{
        .made_at = world.now(), .p50 = world.now(), .p90 = world.now(), .at_latest = world.now(), .place = 1};
    return out;
  }
  const std::vector<WaitReason> reasons = reasons_for(world, subject);
  const Observer::View view{.state = state, .reasons = reasons};
  const ExplainView why = explain(view, subject, viewer);
  if (trial.start.has_value()) {
    out.reason = "preempts";
    out.message = "would start on node " + out.node_name + " once " +
                  std::to_string(trial.start->preemptions.size()) +
                  (trial.start->preemptions.size() == 1 ? " running job has" : " running jobs have") +
                  " been ended for it";
  } else {
    out.reason = why.reason;
    out.message = why.message;
    out.lifted_by = why.lifted_by;
    if (subject.is_queued()) out.evidence = evidence_of(shown_to(viewer, state, view.reason_of(subject)));
  }
  const forecast::Forecast made = table.forecast_of(world, trial.job);
  out.estimate = view_of(made, made.find(trial.job), viewer);
  if (!trial.start.has_value()) out.changes = changes_of(world, trial.job, viewer.sees_all());
  return out;
}

/// Adds how machines change the job's wait, as one clause behind why it waits.
void add_outlook(const machines::JobOutlook& outlook, ExplainView& out) {
  using provision::Outlook;
  switch (outlook.outlook) {
    case Outlook::kStarting: {
      const int64_t left = (outlook.ready_in.ms() + 999) / 1'000;
      const std::string about =
          left < 90 ? std::to_string(left) + " s" : std::to_string((left + 30) / 60) + " min";
      out.message += "; a machine of pool " + outlook.pool + " is being started, " +
                     (left > 0 ? "about " + about : std::string("and is late"));
      out.evidence.emplace_back("machine_ready_in_seconds", left);
      return;
    }
    case Outlook::kAtMaximum:
      out.message += "; pool " + outlook.pool + " has all the machines that it may have";
      return;
    case Outlook::kOverBudget:
      out.message += "; pool " + outlook.pool + " has no budget for another machine";
      return;
    case Outlook::kUnavailable:
      out.message += "; the provider of pool " + outlook.pool + " gives no machine at present";
      return;
  }
}

/// Adds that others are ended for the job if it still waits then.
void add_ends(const State& state, const forecast::Estimate& estimate, const Viewer& viewer,
              ExplainView& out) {
  if (estimate.ends.empty()) return;
  const JobId first = estimate.ends.front();
  const std::size_t others = estimate.ends.size() - 1;
  out.message += "; if it still waits at " + utc_text(estimate.ends_at) + ", it starts by ending " +
                 viewer.name_of(state, first) +
                 (others == 0 ? "" : " and " + std::to_string(others) + " more");
  out.evidence.emplace_back("ends_jobs", static_cast<int64_t>(estimate.ends.size()));
  if (viewer.sees(state, first)) out.evidence.emplace_back("ends_job", static_cast<int64_t>(first.value));
}

}  // namespace

void HostBackend::explain_job(const CallerPtr& caller, JobId job, const std::string& tenant,
                              Done<ExplainView> done) {
  if (sheds_read(done)) return;
  read([this, caller, job, tenant, done = std::move(done)](const Observer::View& view) {
    const auto found = find_job(view.state, *caller, access::Action::kDescribeJob, job, tenant);
    if (!found) return done(found.error());
    const Viewer viewer = Viewer::of(caller, tenant, (*found)->tenant);
    ExplainView out = explain(view, **found, viewer);
    if ((*found)->is_queued() && !view.state.config.pause.on())
      out.evidence = evidence_of(shown_to(viewer, view.state, view.reason_of(**found)));
    if (options_.machines != nullptr && (*found)->is_queued() && !view.state.config.pause.on() &&
        provision::lifted_by_machine(view.reason_of(**found))) {
      if (const auto outlook = options_.machines->outlook_of((*found)->job_class)) add_outlook(*outlook, out);
    }
    if (out.state != JobState::kPending) return done(std::move(out));
    const JobId array = (*found)->array;
    host_.forecasts().ask(
        view.state.last.sequence, {},
        [out, array, viewer, done](ForecastService::Table& table) mutable {
          const forecast::Forecast& made = table.forecast(array.valid() ? array : out.id);
          const forecast::Estimate* estimate = made.find(out.id);
          if (estimate == nullptr && array.valid()) estimate = made.find(array);
          out.estimate = view_of(made, estimate, viewer);
          if (estimate != nullptr) add_ends(table.world().state(), *estimate, viewer, out);
          if (forecast::subject_of(table.world().state(), out.id).valid()) {
            forecast::World scratch = table.world().copy();
            out.changes = changes_of(scratch, out.id, viewer.sees_all());
          }
          return [out = std::move(out), done] { done(out); };
        },
        // Why it waits is known all the same.
        [out, done](const Error&) { done(out); });
  });
}

void HostBackend::plan_for(const CallerPtr& caller, const Viewer& viewer, SubmitJobs command,
                           Done<PlanView> done) {
  std::vector<JobId> parents;  // Those that ended are not in a world by themselves.
  for (const JobFlow& flow : command.jobs.front().flow) {
    for (const Dependency& one : flow.dependencies) parents.push_back(one.parent);
  }
  host_.forecasts().ask(
      answered_.load(std::memory_order_acquire), std::move(parents),
      [command = std::move(command), caller, positions = positions_, viewer,
       done](ForecastService::Table& table) -> ForecastService::Answer {
        forecast::World world = table.world().copy();
        forecast::Work work{.left = kTrialWork};
        const forecast::Trial trial = forecast::try_submission(world, command, work);
        if (trial.rejection) {
          return [done, error = to_api_error(*caller, *positions, *trial.rejection, 1)] { done(error); };
        }
        return [done, plan = plan_view(table, world, trial, viewer)] { done(plan); };
      },
      [done](const Error& error) { done(no_forecast(error)); });
}

void HostBackend::get_quality(const CallerPtr& caller, const std::string& tenant, Done<QualityView> done) {
  const auto told = [this] {
    QualityView view = view_of(host_.forecasts().quality());
    if (task_uses_ != nullptr) view.task_memory = task_uses_->scores();
    return view;
  };
  if (tenant.empty() && may_always(*caller, access::Action::kSeeQuality)) return done(told());
  with_tenant(
      caller, access::Action::kSeeQuality, tenant,
      [told, done](TenantId id) {
        QualityView out = told();
        const auto is_others = [name = tenant_name(id)](const auto& score) { return score.tenant != name; };
        for (auto* scores : {&out.run_times, &out.starts}) std::erase_if(*scores, is_others);
        std::erase_if(out.task_memory, is_others);
        out.error_buckets.assign(out.error_buckets.size(), 0);
        done(std::move(out));
      },
      done);
}

void HostBackend::plan(const CallerPtr& caller, SubmitRequest request, Done<PlanView> done) {
  if (auto refused = check_labels(request)) return done(std::move(*refused));
  number_elements(caller, std::move(request), done, [this, caller, done](SubmitRequest numbered) {
    plan_numbered(caller, std::move(numbered), done);
  });
}

void HostBackend::plan_numbered(const CallerPtr& caller, SubmitRequest request, Done<PlanView> done) {
  if (auto refused = check_jobs(*caller, request)) return done(std::move(*refused));
  if (request.jobs.size() != 1) {
    return done(ApiError{ErrorKind::kInvalidArgument, "a plan is for one job; send one request for each job",
                         "jobs"});
  }
  SubmitJobs command = command_of(*caller, request);
  command.request_key.clear();  // Nothing is written that could be written twice.
  if (!well_formed(command)) {
    return done(to_api_error(
        {.code = ErrorCode::kInvalidArgument, .message = "the request has a value out of range"}));
  }
  if (const char* const field = unprintable_field(command)) return done(to_api_error(unprintable(field)));
  const auto kept = std::make_shared<SubmitJobs>(std::move(command));
  with_tenant(
      caller, access::Action::kPlanJob, request.tenant,
      [this, caller, kept, named = request.tenant, done](TenantId tenant) {
        kept->tenant = tenant;
        plan_for(caller, Viewer::of(caller, named, tenant), std::move(*kept), done);
      },
      done);
}

}  // namespace gpusched::api
