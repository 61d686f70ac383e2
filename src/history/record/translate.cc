#include "history/record/translate.h"

#include <bit>
#include <set>
#include <type_traits>

#include "base/overloaded.h"
#include "model/identity/caller_kind.h"

namespace gpusched::history {
namespace {

std::string tenant_name_of(const State& state, TenantId id) {
  const Tenant* const tenant = state.find_tenant(id);
  return tenant == nullptr ? "tenant-" + std::to_string(id.value) : tenant->name;
}

std::string node_name_of(const State& state, NodeId id) {
  if (!id.valid()) return "";
  const Node* const node = state.find_node(id);
  return node == nullptr ? "node-" + std::to_string(id.value) : node->name;
}

MemberPlace place_of(const State& state, const Member& member, uint32_t index) {
  MemberPlace place{.member = index,
                    .node = node_name_of(state, member.node),
                    .model = {},
                    .device_mask = member.device_mask,
                    .gpu_milli = member.gpu_milli,
                    .is_slice = !member.mig_profile.empty(),
                    .cpu_milli = member.cpu_milli,
                    .memory_mb = member.memory_mb};
  const Node* const node = state.find_node(member.node);
  if (node == nullptr || member.device_mask == 0) return place;
  const auto first = static_cast<std::size_t>(std::countr_zero(member.device_mask));
  if (first < node->devices.size())
    place.model = state.device_classes[node->devices[first].device_class].model;
  return place;
}

Placed placed_of(const State& state, JobId id, uint32_t attempt, Time at,
                 const std::vector<Member>& members) {
  Placed placed{.job = id,
                .attempt = attempt,
                .at = at,
                .tenant = kDefaultTenant,
                .tenant_name = {},
                .user = {},
                .members = {}};
  if (const Job* const job = state.jobs.find(id)) {
    placed.tenant = job->tenant;
    placed.user = user_of(state, *job);
  }
  placed.tenant_name = tenant_name_of(state, placed.tenant);
  for (uint32_t i = 0; i < members.size(); ++i) placed.members.push_back(place_of(state, members[i], i));
  return placed;
}

JobRow row_of(const State& state, const Job& job, const DescribeJob& describe) {
  const Amount amount = state.held_by(job);
  JobRow row{.id = job.id,
             .tenant = job.tenant,
             .tenant_name = tenant_name_of(state, job.tenant),
             .user = user_of(state, job),
             .owner = owner_of(state, job),
             .name = describe ? describe(job).name : std::string(),
             .state = std::string(to_string(job.state)),
             .reason = std::string(to_string(job.reason)),
             .cause = job.last_cause == EndCause::kNone ? "" : std::string(to_string(job.last_cause)),
             .exit_code = job.exit_code,
             .signal = job.signal,
             .priority = job.priority,
             .gpu_count = amount.gpus,
             .gpu_milli = amount.gpu_milli,
             .gpu_model = state.class_of(job).parts.front().gpu_model,
             .gpu_memory_mb = amount.gpu_memory_mb,
             .cpu_milli = amount.cpu_milli,
             .memory_mb = amount.memory_mb,
             .submitted_at = job.submitted_at,
             .scheduled_at = job.scheduled_at,
             .started_at = job.started_at,
             .ended_at = job.ended_at,
             .attempts = job.attempt_count,
             .preemptions = job.extras->preempt_count,
             .node = node_name_of(state, job.node),
             .gpu_ms = job.attained_gpu_ms,
             .array = job.array};
  return row;
}

/// Row of a job that was forgotten in the record in which it ended: what its end says.
JobRow row_of(const JobFinished& end) {
  return {.id = end.job,
          .state = std::string(to_string(end.state)),
          .reason = std::string(to_string(end.reason)),
          .cause = end.outcome.cause == EndCause::kNone ? "" : std::string(to_string(end.outcome.cause)),
          .exit_code = end.outcome.exit_code,
          .signal = end.outcome.signal,
          .submitted_at = end.at,
          .ended_at = end.at};
}

/// Appends "name=value" for a setting that is given.
class Settings {
 public:
  void add(bool given, std::string_view name, const std::string& value) {
    if (!given) return;
    if (!text_.empty()) text_ += ' ';
    text_.append(name).append("=").append(value);
  }
  void add(bool given, std::string_view name, int64_t value) { add(given, name, std::to_string(value)); }
  void add(bool given, std::string_view name, const std::optional<int64_t>& value) {
    add(given, name, value ? std::to_string(*value) : std::string("none"));
  }
  std::string take() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string user_of(const State& state, const Job& job) {
  const JobOwner* const owner = state.owners.at(job.owner);
  const bool own = owner != nullptr && !owner->name.empty() &&
                   (owner->kind == CallerKind::kPerson || owner->kind == CallerKind::kService);
  if (own) return owner->name;
  if (!job.submitted_by.empty()) return std::string(job.submitted_by.view());
  return owner == nullptr ? "" : owner->name;
}

std::string owner_of(const State& state, const Job& job) {
  const JobOwner* const owner = state.owners.at(job.owner);
  if (owner == nullptr) return "";
  if (owner->kind == CallerKind::kAnonymous) return std::string(to_string(owner->kind));
  return std::string(to_string(owner->kind)) + " " + owner->name;
}

namespace {

QuotaChanged change_of(const State& state, const Tenant& tenant, const std::string& by, Time at) {
  Settings settings;
  const Limits& limits = tenant.limits;
  settings.add(true, "name", tenant.name);
  settings.add(limits.resources.gpus.has_value(), "max_gpus", limits.resources.gpus);
  settings.add(limits.resources.gpu_memory_mb.has_value(), "max_gpu_memory_mb",
               limits.resources.gpu_memory_mb);
  settings.add(limits.resources.cpu_milli.has_value(), "max_cpu_milli", limits.resources.cpu_milli);
  settings.add(limits.resources.memory_mb.has_value(), "max_memory_mb", limits.resources.memory_mb);
  settings.add(limits.resources.jobs.has_value(), "max_jobs", limits.resources.jobs);
  settings.add(true, "weight_milli", tenant.weight_milli);
  settings.add(tenant.guarantee.gpus != 0, "guarantee_gpus", tenant.guarantee.gpus);
  return {.at = at,
          .tenant = tenant.id,
          .tenant_name = tenant_name_of(state, tenant.id),
          .by = by,
          .change = std::move(settings).take()};
}

QuotaChanged change_of(const State& state, const UpdateTenant& change, Time at) {
  Settings settings;
  const auto given = [&](uint32_t field) { return (change.given & field) != 0; };
  settings.add(given(kTenantName), "name", change.name);
  settings.add(given(kTenantMaxGpus), "max_gpus", change.limits.resources.gpus);
  settings.add(given(kTenantMaxGpuMemory), "max_gpu_memory_mb", change.limits.resources.gpu_memory_mb);
  settings.add(given(kTenantMaxCpu), "max_cpu_milli", change.limits.resources.cpu_milli);
  settings.add(given(kTenantMaxMemory), "max_memory_mb", change.limits.resources.memory_mb);
  settings.add(given(kTenantMaxJobs), "max_jobs", change.limits.resources.jobs);
  settings.add(given(kTenantPriorityTier), "priority_tier", int64_t{change.priority_tier});
  settings.add(given(kTenantWeight), "weight_milli", change.weight_milli);
  settings.add(given(kTenantGuaranteeGpus), "guarantee_gpus", change.guarantee.gpus);
  settings.add(given(kTenantGpuTimeWindow), "gpu_time_window_s", change.gpu_time_window.ms() / 1'000);
  settings.add(given(kTenantGpuTimeMax), "gpu_time_max_ms", change.gpu_time_max_ms);
  return {.at = at,
          .tenant = change.tenant,
          .tenant_name = tenant_name_of(state, change.tenant),
          .by = change.by,
          .change = std::move(settings).take()};
}

class Translator {
 public:
  Translator(const State& state, Time at, const DescribeJob& describe, std::vector<Event>& out)
      : state_(state), at_(at), describe_(describe), out_(out) {}

  void operator()(const AttemptPlaced& e) {
    out_.emplace_back(placed_of(state_, e.job, e.attempt, e.at, e.members));
  }
  void operator()(const MemberStarted& e) { out_.emplace_back(Started{.key = key_of(e), .at = e.at}); }
  void operator()(const MemberEnded& e) {
    out_.emplace_back(Ended{.key = key_of(e),
                            .at = e.at,
                            .cause = e.outcome.cause,
                            .exit_code = e.outcome.exit_code,
                            .signal = e.outcome.signal,
                            .cpu_ms = e.outcome.usage.cpu_time.ms(),
                            .peak_memory_bytes = e.outcome.usage.peak_memory_bytes});
  }
  void operator()(const AttemptAbandoned& e) {
    // Before feature level 2 the event had no time: that of its record is the same.
    out_.emplace_back(Abandoned{.job = e.job, .attempt = e.attempt, .at = e.at.valid() ? e.at : at_});
  }
  void operator()(const StopRequested& e) {
    if (e.reason == StopReason::kPreempt)
      out_.emplace_back(Preempted{.job = e.job, .attempt = e.attempt, .at = at_});
  }
  void operator()(const JobFinished& e) {
    const Job* const job = state_.jobs.find(e.job);
    out_.emplace_back(Finished{job != nullptr ? row_of(state_, *job, describe_) : row_of(e)});
  }
  void operator()(const TenantCreated& e) { out_.emplace_back(change_of(state_, *e.tenant, e.by, at_)); }
  void operator()(const TenantUpdated& e) {
    QuotaChanged change = change_of(state_, *e.change, e.at.valid() ? e.at : at_);
    if (!change.change.empty()) out_.emplace_back(std::move(change));
  }
  /// All others change neither a job's end nor who holds a GPU.
  template <typename Other>
  void operator()(const Other& /*other*/) {}

 private:
  static AttemptKey key_of(const auto& e) { return {.job = e.job, .attempt = e.attempt, .member = e.member}; }

  const State& state_;
  Time at_;
  const DescribeJob& describe_;
  std::vector<Event>& out_;
};

}  // namespace

void translate(const State& state, const Events& events, Time at, const DescribeJob& describe,
               std::vector<Event>& out) {
  Translator translator(state, at, describe, out);
  for (const auto& event : events) std::visit(translator, event);
}

namespace {

TenantRow row_of(const Tenant& tenant) {
  const ResourceLimits& limits = tenant.limits.resources;
  return {.id = tenant.id,
          .name = tenant.name,
          .organization = tenant.organization,
          .max_gpus = limits.gpus,
          .max_gpu_memory_mb = limits.gpu_memory_mb,
          .max_cpu_milli = limits.cpu_milli,
          .max_memory_mb = limits.memory_mb,
          .max_jobs = limits.jobs,
          .priority_tier = tenant.priority_tier,
          .weight_milli = tenant.weight_milli,
          .gpus = tenant.usage.gpus,
          .gpu_milli = tenant.usage.gpu_milli,
          .gpu_memory_mb = tenant.usage.gpu_memory_mb,
          .cpu_milli = tenant.usage.cpu_milli,
          .memory_mb = tenant.usage.memory_mb,
          .jobs = tenant.usage.jobs,
          .jobs_total = tenant.jobs_total,
          .jobs_successful = tenant.jobs_successful,
          .jobs_failed = tenant.jobs_failed,
          .active = !tenant.deleted,
          .created_at = tenant.created_at,
          .updated_at = tenant.updated_at};
}

/// Jobs and tenants that events are about.
struct Touched {
  std::set<JobId> jobs;
  std::set<TenantId> tenants;

  void operator()(const JobUpdated& e) { jobs.insert(e.change->job); }
  void operator()(const TenantCreated& e) { tenants.insert(e.tenant->id); }
  void operator()(const TenantUpdated& e) { tenants.insert(e.change->tenant); }
  void operator()(const TenantDeleted& e) { tenants.insert(e.tenant); }
  template <typename Other>
  void operator()(const Other& e) {
    if constexpr (requires { jobs.insert(e.job); }) jobs.insert(e.job);
  }
};

}  // namespace

Present present_of(const State& state, const Events& events, bool all_tenants, const DescribeJob& describe) {
  Touched touched;
  for (const auto& event : events) std::visit(touched, event);
  Present present;
  for (const JobId id : touched.jobs) {
    const Job* const job = state.jobs.find(id);
    if (job == nullptr) continue;
    touched.tenants.insert(job->tenant);
    if (!is_final(job->state)) present.jobs.push_back(row_of(state, *job, describe));
  }
  if (all_tenants) {
    for (const auto& [id, tenant] : state.tenants) touched.tenants.insert(id);
  }
  // A tenant's use is its parents', too.
  std::set<TenantId> tenants;
  for (TenantId id : touched.tenants) {
    const Tenant* tenant = state.find_tenant(id);
    for (; tenant != nullptr && tenants.insert(tenant->id).second; tenant = state.find_tenant(tenant->parent))
      present.tenants.push_back(row_of(*tenant));
  }
  return present;
}

Present all_present(const State& state, const DescribeJob& describe) {
  Present present{.jobs = {}, .tenants = {}, .is_all = true};
  for (const auto& [id, tenant] : state.tenants) present.tenants.push_back(row_of(tenant));
  state.jobs.for_each([&](const Job& job) {
    if (!is_final(job.state)) present.jobs.push_back(row_of(state, job, describe));
    return true;
  });
  return present;
}

Adopted adopt(const State& state, uint64_t after, const DescribeJob& describe) {
  Adopted adopted{.after = after, .jobs = {}, .running = {}, .begun = {}};
  for (const JobId id : state.finished) {
    if (const Job* const job = state.jobs.find(id)) adopted.jobs.push_back(row_of(state, *job, describe));
  }
  for (const auto& [key, attempt] : state.attempts) {
    if (attempt.abandoned) continue;
    Placed placed = placed_of(state, attempt.job, attempt.number, attempt.placed_at, attempt.members);
    std::erase_if(placed.members, [&](const MemberPlace& place) {
      return attempt.members[place.member].state == MemberState::kEnded;
    });
    for (const MemberPlace& place : placed.members) {
      if (has_begun(attempt.members[place.member].state)) adopted.begun.push_back(attempt.key(place.member));
    }
    adopted.running.push_back(std::move(placed));
  }
  return adopted;
}

}  // namespace gpusched::history
