// HostBackend: submissions, as the engine's commands.
#include <algorithm>
#include <utility>

#include "api/backend/host_backend.h"
#include "api/backend/rerun.h"
#include "api/backend/services/service_labels.h"
#include "api/backend/unix_users.h"
#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/views/rights.h"
#include "api/views/state_views.h"
#include "base/job_labels.h"
#include "base/limits.h"
#include "base/net/webhook_url.h"
#include "base/task_labels.h"

namespace gpusched::api {
namespace {

Part to_engine(JobPart&& asked, const JobRequest& job) {
  Part part{.member_count = asked.members,
            .gpu_count = asked.gpu_count,
            .cpu_milli = static_cast<int32_t>(asked.cpu_milli),
            .memory_mb = asked.memory_mb,
            .gpu_model = std::move(asked.gpu_model),
            .features = (job.wants_container ? kFeatureContainer : 0) | (job.external ? kFeatureExternal : 0),
            .work = job.work};
  part.gpu_milli = asked.gpu_milli;
  part.member_max = asked.members_max;
  part.domain = job.domain;
  part.domain_required = job.domain_required;
  if (part.is_share()) part.gpu_share_mb = asked.gpu_memory_mb;
  // Memory that is asked of all devices together is asked of each in equal shares, rounded up.
  if (part.gpu_count > 0 && !part.is_share())
    part.gpu_memory_mb =
        std::max((asked.gpu_memory_mb + part.gpu_count - 1) / part.gpu_count, job.gpu_memory_each_mb);
  part.place = job.place;
  return part;
}

std::vector<Part> parts_of(JobRequest& job) {
  std::vector<Part> parts;
  for (JobPart& part : job.parts) {
    parts.push_back(to_engine(std::move(part), job));
    parts.back().one_member_per_node = job.one_member_per_node;
  }
  if (!parts.empty()) return parts;
  JobPart whole{.members = std::max(job.nodes, 1),
                .members_max = job.nodes_max,
                .gpu_count = job.gpu_count,
                .gpu_milli = job.gpu_milli,
                .gpu_memory_mb = job.gpu_memory_mb,
                .gpu_model = std::move(job.gpu_model),
                .cpu_milli = job.cpu_milli,
                .memory_mb = job.memory_mb};
  parts.push_back(to_engine(std::move(whole), job));
  parts.back().mig_profile = std::move(job.mig_profile);
  parts.back().one_member_per_node = job.is_gang();
  parts.back().may_span_nodes = job.gpus_over_nodes && !job.is_gang();
  return parts;
}

gpusched::JobRequest to_engine(JobRequest&& job, int32_t default_priority) {
  std::vector<Part> parts = parts_of(job);
  gpusched::JobRequest out{.priority = job.priority.value_or(default_priority),
                           .max_runtime = job.max_runtime,
                           .retry = {.exit_code_retries = job.exit_code_retries,
                                     .system_retries = job.system_retries,
                                     .overlap_allowed = job.overlap_allowed,
                                     .tolerates_node_loss = job.tolerates_node_loss,
                                     .causes = job.retry_causes,
                                     .kill_after_lost_contact = job.kill_after_lost_contact,
                                     .exit_codes = Blob(job.retry_exit_codes)},
                           .require_feasible = job.require_feasible,
                           .spec = Blob(job.spec),
                           .held = job.held,
                           .flow = std::move(job.flow),
                           .preemption_mode = job.preemption_mode,
                           .booking = std::move(job.reservation),
                           .interactive = job.interactive,
                           .preempt_grace = job.preempt_grace};
  out.parts = std::move(parts);
  return out;
}

/// Labels by which the scheduler finds a door's jobs again: set by anybody else they would take a task's id
/// or the answer to an Idempotency-Key.
struct ReservedLabel {
  std::string_view label, setter;
};
constexpr std::string_view kAgentLabels = "agent_";
constexpr std::string_view kTasksDoor = "the tasks door for agents (gRPC algogpu.GPUScheduler)";
constexpr ReservedLabel kReservedLabels[] = {{kTaskIdLabel, kTasksDoor},
                                             {kTaskUserLabel, kTasksDoor},
                                             {kTaskMemoryLabel, kTasksDoor},
                                             {kTaskLoadLabel, kTasksDoor},
                                             {kLeaseRequestLabel, "the allocation door"}};

}  // namespace

void HostBackend::give_learned(const access::Caller& caller, SubmitRequest& request) const {
  if (task_uses_ == nullptr) return;
  const auto tenant =
      request.tenant.empty() ? std::optional(home_tenant(caller)) : parse_tenant_id(request.tenant);
  if (!tenant) return;
  for (JobRequest& job : request.jobs) task_uses_->give(*tenant, job);
}

// All but its tenant.
SubmitJobs HostBackend::command_of(const access::Caller& caller, SubmitRequest& request) const {
  SubmitJobs command{.request_key = std::move(request.request_key),
                     .by = std::move(request.by),
                     .owner_kind = caller.kind,
                     .owner = caller.name};
  command.jobs.reserve(request.jobs.size());
  for (JobRequest& job : request.jobs) {
    const SpecPeek peek = peek_spec(job.spec);
    const std::string_view user = peek.submitter.empty() ? peek.user : peek.submitter;
    if (command.jobs.empty()) command.user = user.substr(0, limits::kNameBytesMax);
    std::string task_type(peek.task_type);
    command.jobs.push_back(to_engine(std::move(job), options_.default_priority));
    command.jobs.back().task_type = std::move(task_type);
  }
  // A caller with a name of its own pays with its own bucket, whatever it says.
  if (caller.kind == access::CallerKind::kPerson || caller.kind == access::CallerKind::kService)
    command.user = caller.name;
  return command;
}

std::optional<ApiError> HostBackend::check_gangs(SubmitRequest& request) const {
  if (options_.gangs) return std::nullopt;
  for (JobRequest& job : request.jobs) {
    // One GPU is on one node whatever is asked for.
    const bool over_nodes = std::exchange(job.gpus_over_nodes, false) && job.gpu_count > 1;
    if (!job.is_gang() && !over_nodes) continue;
    return ApiError{ErrorKind::kPartsUnsupported,
                    "this scheduler does not place a job on several nodes (scheduler.enable_gang_scheduling "
                    "is false); request one node",
                    over_nodes ? "gang_scheduling" : "nodes"};
  }
  return std::nullopt;
}

/// Checks the grace period and the webhook of jobs against this scheduler's own limits.
std::optional<ApiError> HostBackend::check_handshake(const SubmitRequest& request) const {
  for (const JobRequest& job : request.jobs) {
    if (job.preempt_grace > options_.preempt_grace_max) {
      return ApiError{ErrorKind::kInvalidArgument,
                      "a job may request a grace period of at most " +
                          std::to_string(options_.preempt_grace_max.ms() / 1'000) +
                          " s before it is preempted (scheduler.preempt_grace_max_seconds); request less",
                      "preempt_grace_seconds"};
    }
    if (job.preempt_webhook.empty()) continue;
    const std::optional<WebhookUrl> url = parse_webhook_url(job.preempt_webhook);
    if (url && is_listed(*url, options_.preempt_webhook_hosts)) continue;
    return ApiError{ErrorKind::kInvalidArgument,
                    options_.preempt_webhook_hosts.empty()
                        ? "this scheduler does not allow preempt_webhook (scheduler.preempt_webhook_hosts is "
                          "empty); remove it"
                        : "the host of preempt_webhook is not one of scheduler.preempt_webhook_hosts; give a "
                          "URL of one of those hosts",
                    "preempt_webhook"};
  }
  return std::nullopt;
}

/// A job that names no user waits in vain where no node has one for it: said now, and not after every try.
std::optional<ApiError> HostBackend::check_users(const access::Caller& caller,
                                                 const SubmitRequest& request) const {
  if (nameless_->possible(false) && nameless_->possible(true)) return std::nullopt;
  for (const JobRequest& job : request.jobs) {
    if (job.external || !peek_spec(job.spec).user.empty()) continue;
    const bool never_root = is_never_root(job.spec);
    if (nameless_->possible(never_root)) continue;
    const bool anonymous = caller.kind == access::CallerKind::kAnonymous;
    const std::string who =
        anonymous ? "callers without a credential" : std::string(to_string(caller.kind)) + " " + caller.name;
    const std::string why =
        nameless_->possible(false)
            ? "the job names no user, and all nodes run such jobs as root, which is never allowed for " + who
            : "the job names no user, and no node has a default user: the agents run as root";
    const std::string fix =
        anonymous ? "; start an agent with --default-user NAME, or submit the job with the token"
                  : "; give a user (gpu-cli: --user NAME), or start an agent with --default-user NAME";
    return ApiError{ErrorKind::kUnprocessable, why + fix, "user"};
  }
  return std::nullopt;
}

std::optional<ApiError> HostBackend::check_labels(const SubmitRequest& request) {
  if (request.sets_reserved_labels) return std::nullopt;
  for (const JobRequest& job : request.jobs) {
    const std::string_view spec = job.spec;
    if (spec.find(kAgentLabels) == std::string_view::npos && !has_our_label(spec)) continue;
    for (const ReservedLabel& reserved : kReservedLabels) {
      if (!spec_label(spec, reserved.label)) continue;
      return ApiError{ErrorKind::kUnprocessable,
                      "the label " + std::string(reserved.label) + " is set by " +
                          std::string(reserved.setter) + " alone; remove it, or choose another label",
                      "labels"};
    }
  }
  return std::nullopt;
}

namespace {

/// The parents of a submission that are named as elements of arrays: "job-12[3]".
std::vector<JobId*> named_elements(SubmitRequest& request) {
  std::vector<JobId*> parents;
  for (JobRequest& job : request.jobs) {
    for (JobFlow& flow : job.flow) {
      for (Dependency& one : flow.dependencies) {
        if (!one.index && is_element_name(one.parent)) parents.push_back(&one.parent);
      }
    }
  }
  return parents;
}

}  // namespace

void HostBackend::submit(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done) {
  if (auto refused = check_labels(request)) return done(std::move(*refused));
  if (is_about_service(request)) return submit_record(caller, std::move(request), std::move(done));
  number_elements(caller, std::move(request), done, [this, caller, done](SubmitRequest numbered) {
    submit_jobs(caller, std::move(numbered), done);
  });
}

// The engine knows elements by their numbers, which never change.
void HostBackend::number_elements(const CallerPtr& caller, SubmitRequest request,
                                  std::function<void(ApiError)> refused,
                                  std::function<void(SubmitRequest)> then) {
  if (named_elements(request).empty()) return then(std::move(request));
  if (sheds_read(refused)) return;
  read([caller, request = std::move(request), refused = std::move(refused),
        then = std::move(then)](const Observer::View& view) mutable {
    for (JobId* const parent : named_elements(request)) {
      const auto found = find_job(view.state, *caller, access::Action::kSeeJob, *parent, "");
      if (!found) {
        return refused(ApiError{
            ErrorKind::kDependencyNotFound,
            "there is no job " + job_name(*parent) + " to depend on; give one that exists", "dependencies"});
      }
      *parent = (*found)->id;
    }
    then(std::move(request));
  });
}

void HostBackend::submit_jobs(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done) {
  if (auto refused = check_jobs(*caller, request)) return done(std::move(*refused));
  give_learned(*caller, request);
  SubmitJobs command = command_of(*caller, request);
  propose_jobs(caller, request.tenant, std::move(command), std::move(done));
}

std::optional<ApiError> HostBackend::check_jobs(const access::Caller& caller, SubmitRequest& request) const {
  if (auto refused = limit_jobs(caller, options_.anonymous, request)) return refused;
  if (auto refused = assign_users(caller, request)) return refused;
  if (auto refused = check_handshake(request)) return refused;
  if (auto refused = check_gangs(request)) return refused;
  return check_users(caller, request);
}

void HostBackend::propose_jobs(const CallerPtr& caller, const std::string& tenant, SubmitJobs command,
                               Done<Submitted> done) {
  const std::size_t batch_size = command.jobs.size();
  std::vector<uint32_t> numbers;
  const bool arrays = std::any_of(command.jobs.begin(), command.jobs.end(),
                                  [](const gpusched::JobRequest& job) { return job.is_array(); });
  for (std::size_t i = 0; arrays && i < batch_size; ++i) numbers.push_back(command.jobs[i].sequence_count());
  const auto decide = [this, caller, batch_size, numbers](const Done<Submitted>& answer,
                                                          const Result<Decided>& decided) {
    if (auto refused = refusal_to(*caller, decided, batch_size)) return answer(std::move(*refused));
    // Others' jobs are nobody's business who may not see them: not their number either.
    const bool sees_all = may_always(*caller, access::Action::kSeeJob);
    answer(Submitted{.first_job = JobId{decided->applied.first_id},
                     .job_count = decided->applied.id_count,
                     .numbers = numbers,
                     .queue_position = sees_all ? decided->queue_position : decided->place_among_equals});
  };
  const auto id = tenant.empty() ? std::optional(home_tenant(*caller)) : parse_tenant_id(tenant);
  if (id && is_known_to_be_allowed(*caller, access::Action::kSubmitJob, *id)) {
    // The usual case goes straight to the host.
    command.tenant = *id;
    propose_as(*caller, std::move(command),
               [decide, done = std::move(done)](const Result<Decided>& decided) { decide(done, decided); });
    return;
  }
  const auto kept = std::make_shared<SubmitJobs>(std::move(command));
  with_tenant(
      caller, access::Action::kSubmitJob, tenant,
      [this, caller, decide, kept, done](TenantId its) {
        kept->tenant = its;
        propose_as(*caller, std::move(*kept),
                   [decide, done](const Result<Decided>& decided) { decide(done, decided); });
      },
      done);
}

void HostBackend::rerun_job(const CallerPtr& caller, JobId id, RerunRequest request, Done<Submitted> done) {
  if (sheds_read(done)) return;
  read([this, caller, id, request = std::move(request), done = std::move(done)](const Observer::View& view) {
    // The new job has everything that the old one had, its secrets too: only who may change that may.
    const auto found = find_job(view.state, *caller, access::Action::kUpdateJob, id, request.tenant);
    if (!found) return done(found.error());
    Answer<Rerun> rerun = rerun_of(view.state, **found, request);
    if (!rerun) return done(rerun.error());
    if (auto refused = check_jobs(*caller, rerun->submission)) return done(std::move(*refused));
    const std::string tenant = rerun->submission.tenant;
    SubmitJobs command = command_of(*caller, rerun->submission);
    take_record(**found, std::move(*rerun), command.jobs.front());
    propose_jobs(caller, tenant, std::move(command), done);
  });
}

}  // namespace gpusched::api
