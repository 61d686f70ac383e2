// HostBackend: services.
#include <algorithm>

#include "api/backend/anonymous_limits.h"
#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/contract/parse.h"
#include "api/contract/spec_peek.h"
#include "api/views/reader_clock.h"
#include "api/views/state_views.h"
#include "base/job_labels.h"

namespace gpusched::api {

using access::Action;
using Entry = ServiceIndex::Entry;

namespace {

ApiError no_such_service(const std::string& service) {
  return {ErrorKind::kNotFound,
          "no such service: " + service.substr(0, 64) + "; gpu-cli service list shows the existing ones"};
}

/// Whether the caller may know of the service: its name is part of how its record is described.
bool may_know(const State& state, const access::Caller& caller, const Entry& entry) {
  const Job* const record = state.jobs.find(entry.row.record);
  return record != nullptr && decide(state, caller, Action::kSeeJob, *record) == access::Verdict::kAllowed &&
         decide(state, caller, Action::kDescribeJob, *record) == access::Verdict::kAllowed;
}

/// The service of that name, or of that record, when the caller may do that to its record.
Answer<Entry> find_service(const State& state, const ServiceIndex& index, const access::Caller& caller,
                           Action action, const std::string& service, const std::string& tenant) {
  TenantId only;
  if (!tenant.empty()) {
    const Answer<const Tenant*> named = find_tenant(state, caller, tenant);
    if (!named) return named.error();
    only = (*named)->id;
  }
  std::optional<JobId> record = parse_job_id(service);
  if (record) {
    // A caller that may not know of the job learns no more of it here.
    const auto found = find_job(state, caller, action, *record, tenant);
    if (!found) return found.error();
    record = (*found)->id;
  }
  std::optional<Entry> found;
  bool hidden = false;
  std::vector<ServiceKey> keys;
  if (!record) {
    keys = index.named(service);
  } else if (const std::optional<ServiceKey> key = index.with_record(*record)) {
    keys.push_back(*key);
  }
  for (const ServiceKey& key : keys) {
    if (only.valid() && key.first != only) continue;
    std::optional<Entry> entry = index.find(key);
    if (!entry || (record && entry->row.record != *record)) continue;
    if (!may_know(state, caller, *entry)) {
      hidden = true;
      continue;
    }
    if (found) {
      return ApiError{ErrorKind::kConflict,
                      "several tenants have a service " + service + "; name the tenant as well", "tenant_id"};
    }
    found = std::move(entry);
  }
  if (!found) {
    ApiError error = no_such_service(service);
    error.hidden = hidden;
    return error;
  }
  const auto allowed = find_job(state, caller, action, found->row.record, "");
  if (!allowed) return allowed.error();
  return std::move(*found);
}

/// For how long something has been so, by the clock that the state's times come from.
Time now_of(const Observer::View& view) { return reader_now(view.state); }

std::string_view state_of(const Entry& entry, Time now) {
  const ServiceRow& row = entry.row;
  if (row.deleted) return "deleting";
  const int64_t done = count_done(row);
  int64_t ready = 0;
  for (const auto& [job, replica] : row.replicas) {
    const bool is_old = replica.mark.generation != row.settings.generation;
    if (is_old && replica.is_live()) return find_stall(row, now) ? "stalled" : "rolling_out";
    if (is_old) continue;
    if (is_ready(replica, row.settings, now)) ready += 1;
  }
  if (done == row.settings.replicas && done > 0) return "finished";
  return ready + done >= row.settings.replicas ? "ready" : "starting";
}

/// Why the rollout does not go on, and what to do.
std::string stall_message(const Entry& entry, const Stall& stall) {
  const std::string rollout = "the rollout to generation " + std::to_string(entry.row.settings.generation) +
                              " is stalled: for " + std::to_string(stall.waited.ms() / 1'000) + " s ";
  const std::string what_to_do =
      "; what ran before goes on where it is; roll out what works, or give it longer (--rollout-deadline)";
  if (stall.replica == nullptr)
    return rollout + "no replica of it could be made" +
           (entry.problem.empty() ? "" : " (" + entry.problem + ")") + what_to_do;
  const std::string job = job_name(stall.replica->job);
  std::string why = "did not get ready";
  if (stall.replica->state == JobState::kPending) why = "did not start (gpu-cli explain " + job + ")";
  if (stall.replica->endpoint && !stall.replica->endpoint->detail.empty())
    why += ", since " + stall.replica->endpoint->detail;
  return rollout + "replica " + std::to_string(stall.replica->mark.index) + ", " + job + ", " + why +
         "; its output says more (gpu-cli logs " + job + ")" + what_to_do;
}

ReplicaView replica_view(const Observer::View& view, const ReplicaRow& replica,
                         const ServiceSettings& settings, Time now, const Viewer& viewer) {
  ReplicaView shown{.job = replica.job,
                    .index = replica.mark.index,
                    .generation = replica.mark.generation,
                    .state = to_string(replica.state),
                    .is_ready = is_ready(replica, settings, now),
                    .restarts = replica.mark.restarts};
  if (replica.state == JobState::kRunning) shown.started_at = replica.started_at;
  const Job* const job = view.state.jobs.find(replica.job);
  if (job == nullptr) return shown;
  JobView detail = view_of(view, *job, viewer, {.name = false, .place = false, .gpus = false});
  shown.message = std::move(detail.message);
  if (!is_final(job->state)) shown.node_name = std::move(detail.node_name);
  if (replica.endpoint && !shown.node_name.empty()) {
    shown.port = replica.endpoint->port;
    if (!shown.is_ready && !replica.endpoint->detail.empty())
      shown.message += (shown.message.empty() ? "" : "; ") + ("not ready: " + replica.endpoint->detail);
  }
  shown.starts_at = detail.begin_at;
  return shown;
}

std::string jobs_text(int64_t count) { return std::to_string(count) + (count == 1 ? " job" : " jobs"); }

ScalingView scaling_view(const Entry& entry, Time now) {
  const ServiceScaling& scaling = *entry.row.settings.scaling;
  const int64_t replicas = entry.row.settings.replicas;
  ScalingView shown{.waiting = entry.waiting, .wanted = replicas};
  if (!entry.waiting) {
    shown.message = "the jobs with " + scaling.queue + " that wait are being counted";
    return shown;
  }
  shown.wanted = wanted_replicas(scaling, *entry.waiting);
  const std::string what = jobs_text(*entry.waiting) + " with " + scaling.queue +
                           (*entry.waiting == 1 ? " waits" : " wait") + ", one replica for " +
                           (scaling.per_replica == 1 ? "each" : jobs_text(scaling.per_replica));
  shown.message = what;
  if (shown.wanted == scaling.max && *entry.waiting > scaling.max * scaling.per_replica)
    shown.message += "; " + std::to_string(scaling.max) + " are the most that it may have";
  if (shown.wanted == scaling.min && *entry.waiting < scaling.min * scaling.per_replica)
    shown.message += "; " + std::to_string(scaling.min) + " are the fewest that it may have";
  if (shown.wanted >= replicas || !entry.lull) return shown;
  const Duration left = std::max(entry.lull->since + scaling.down_after - now, Duration{});
  shown.message +=
      "; fewer than now when that has been so for " + std::to_string(left.ms() / 1'000) + " s more";
  return shown;
}

ServiceView service_view(const Observer::View& view, const Entry& entry, const Viewer& viewer, Time now) {
  ServiceView shown{.name = entry.key.second,
                    .tenant = entry.key.first,
                    .record = entry.row.record,
                    .state = state_of(entry, now),
                    .settings = entry.row.settings,
                    .message = entry.problem};
  if (const std::optional<Stall> stall = find_stall(entry.row, now))
    shown.message = stall_message(entry, *stall);
  if (entry.row.settings.scaling && !entry.row.deleted) shown.scaling = scaling_view(entry, now);
  if (const Job* const record = view.state.jobs.find(entry.row.record)) {
    shown.owner = owner_text(view.state, *record);
    shown.created_at = record->submitted_at;
  }
  for (const auto& [job, replica] : entry.row.replicas) {
    if (!replica.is_live() && replica.mark.index >= entry.row.settings.replicas) continue;
    const ReplicaView& one =
        shown.jobs.emplace_back(replica_view(view, replica, entry.row.settings, now, viewer));
    shown.running += replica.state == JobState::kRunning ? 1 : 0;
    shown.ready += one.is_ready ? 1 : 0;
  }
  std::ranges::sort(shown.jobs, [](const ReplicaView& a, const ReplicaView& b) {
    return std::tuple(a.index, -a.generation, a.job) < std::tuple(b.index, -b.generation, b.job);
  });
  return shown;
}

ApiError bad_record(std::string why, std::string field) {
  return {ErrorKind::kUnprocessable, "the record of a service " + std::move(why), std::move(field)};
}

/// Refuses a number set by hand: it would be changed a moment later.
ApiError scales_itself(const std::string& service, const ServiceScaling& scaling) {
  return {ErrorKind::kConflict,
          "service " + service + " follows the jobs that wait with " + scaling.queue + ", with " +
              std::to_string(scaling.min) + " to " + std::to_string(scaling.max) +
              " replicas; change these bounds (--min and --max, or scale_min and scale_max), or end that "
              "first (--no-scale, or scale_queue none)",
          "replicas"};
}

/// Checks the form of a submission that is about a service.
std::optional<ApiError> check_record(const SubmitRequest& request) {
  if (request.jobs.size() != 1)
    return bad_record("is submitted alone; send it in a request of its own", "jobs");
  const JobRequest& job = request.jobs.front();
  if (spec_label(job.spec, kReplicaLabel)) {
    return ApiError{ErrorKind::kUnprocessable,
                    "the label " + std::string(kReplicaLabel) + " is set by the scheduler alone; remove it",
                    "labels"};
  }
  if (!is_service_name(spec_label(job.spec, kServiceLabel).value_or("")))
    return bad_record("needs a name of 1 to 64 letters, digits, '.', '_' or '-'", "name");
  if (!job.held)
    return bad_record("is a held job; submit it held, or remove the label " + std::string(kServiceLabel),
                      "held");
  if (!job.flow.empty())
    return bad_record("has no array, begin, deadline or dependencies; remove them", "array");
  if (job.interactive) return bad_record("is not interactive; remove that", "interactive");
  if (!job.reservation.empty()) return bad_record("names no reservation; remove it", "reservation");
  return std::nullopt;
}

/// Settings that the record may bring: the first one of a name, or one that follows the newest.
Answer<ServiceSettings> next_settings(const State& state, const access::Caller& caller,
                                      const std::optional<Entry>& now, const std::string& service,
                                      std::string_view spec, SettingNames names) {
  const bool there = now && !now->row.deleted;
  Answer<ServiceSettings> settings =
      read_settings(spec, there ? now->row.settings : ServiceSettings{}, names);
  if (!settings) return settings;
  if (settings->generation == 1) {
    if (parse_job_id(service))
      return bad_record("has the id of a job for a name, which would be taken for its record", "name");
    if (!now) return settings;
    if (there) {
      return ApiError{ErrorKind::kAlreadyExists,
                      "service " + service + " exists; roll it out or scale it, or give another name",
                      "name"};
    }
    return ApiError{.kind = ErrorKind::kConflict,
                    .message = "service " + service + " is still being deleted; try again",
                    .retry_after = seconds(1)};
  }
  if (!there) return no_such_service(service);
  const Job* const record = state.jobs.find(now->row.record);
  if (record == nullptr) return no_such_service(service);
  // Its owner may open sessions in the replicas, so they must run as the owner may have them run.
  if (record->owner != state.owners.find(caller.kind, caller.name)) {
    return ApiError{ErrorKind::kPermissionDenied,
                    "service " + service +
                        " is somebody else's: only its owner rolls it out; delete it, and create another"};
  }
  if (settings->generation != now->row.settings.generation + 1) {
    return ApiError{ErrorKind::kConflict,
                    "service " + service + " is at generation " +
                        std::to_string(now->row.settings.generation) +
                        ": somebody rolled it out meanwhile; look at it, and roll out again",
                    "generation"};
  }
  const std::optional<ServiceScaling>& scaling = now->row.settings.scaling;
  if (scaling && settings->scaling && spec_label(spec, kServiceReplicasLabel))
    return scales_itself(service, *scaling);
  return settings;
}

Command relabel(const Job& record, const std::map<std::string, std::string>& labels, const std::string& by) {
  return UpdateJob{
      .job = record.id, .given = kJobSpec, .spec = Blob(with_labels(record.spec.view(), labels)), .by = by};
}

/// Whether the request was accepted before, by its key.
bool is_repeated(const State& state, const access::Caller& caller, TenantId tenant, const std::string& key) {
  return !key.empty() &&
         state.find_request(tenant, state.owners.find(caller.kind, caller.name), key) != nullptr;
}

}  // namespace

bool HostBackend::is_about_service(const SubmitRequest& request) {
  return std::ranges::any_of(request.jobs, [](const JobRequest& job) { return mentions_service(job.spec); });
}

void HostBackend::submit_record(const CallerPtr& caller, SubmitRequest request, Done<Submitted> done) {
  if (auto refused = check_record(request)) return done(std::move(*refused));
  if (sheds_read(done)) return;
  const auto kept = std::make_shared<SubmitRequest>(std::move(request));
  with_tenant(
      caller, Action::kSubmitJob, kept->tenant,
      [this, caller, kept, done](TenantId tenant) {
        read([this, caller, kept, tenant, done](const Observer::View& view) {
          JobRequest& job = kept->jobs.front();
          const ServiceKey key{tenant, std::string(*spec_label(job.spec, kServiceLabel))};
          if (!services_->begin(key)) return done(being_changed(key.second));
          const Done<Submitted> settled = settling(key, done);
          const std::optional<Entry> now = services_->find(key);
          const SettingNames names = kept->names_fields ? SettingNames::kFields : SettingNames::kLabels;
          if (is_repeated(view.state, *caller, tenant, kept->request_key)) {
            const Answer<ServiceSettings> same =
                read_settings(job.spec, now ? now->row.settings : ServiceSettings{}, names);
            if (!same) return settled(same.error());
            job.spec = record_spec(job.spec, *same);
          } else {
            const Answer<ServiceSettings> settings =
                next_settings(view.state, *caller, now, key.second, job.spec, names);
            if (!settings) return settled(settings.error());
            job.spec = record_spec(job.spec, *settings);
          }
          kept->tenant = tenant_name(tenant);
          submit_jobs(caller, std::move(*kept), settled);
        });
      },
      done);
}

void HostBackend::list_services(const CallerPtr& caller, const std::string& tenant,
                                Done<std::vector<ServiceView>> done) {
  if (sheds_read(done)) return;
  read([this, caller, tenant, done = std::move(done)](const Observer::View& view) {
    TenantId only;
    if (!tenant.empty()) {
      const Answer<const Tenant*> named = find_tenant(view.state, *caller, tenant);
      if (!named) return done(named.error());
      only = (*named)->id;
    }
    std::vector<ServiceView> shown;
    for (const Entry& entry : services_->all()) {
      if ((only.valid() && entry.key.first != only) || !may_know(view.state, *caller, entry)) continue;
      shown.push_back(service_view(view, entry, Viewer::of(caller, tenant, entry.key.first), now_of(view)));
    }
    done(std::move(shown));
  });
}

void HostBackend::get_service(const CallerPtr& caller, const std::string& service, const std::string& tenant,
                              Done<ServiceView> done) {
  if (sheds_read(done)) return;
  read([this, caller, service, tenant, done = std::move(done)](const Observer::View& view) {
    const Answer<Entry> found =
        find_service(view.state, *services_, *caller, Action::kSeeJob, service, tenant);
    if (!found) return done(found.error());
    done(service_view(view, *found, Viewer::of(caller, tenant, found->key.first), now_of(view)));
  });
}

void HostBackend::change_service(const CallerPtr& caller, Action action, const std::string& service,
                                 const std::string& tenant, ServiceChange make, Done<ServiceView> done) {
  if (sheds_read(done)) return;
  read([this, caller, action, service, tenant, make = std::move(make),
        done = std::move(done)](const Observer::View& view) {
    const Answer<Entry> found = find_service(view.state, *services_, *caller, action, service, tenant);
    if (!found) return done(found.error());
    const ServiceKey key = found->key;
    if (found->row.deleted) return get_service(caller, service, tenant, done);  // Nothing is left to change.
    const Job& record = view.state.job_at(found->row.record);
    if (!services_->begin(key)) return done(being_changed(key.second));
    const Answer<Command> command = make(record, found->row.settings);
    if (!command) {
      services_->end(key);
      return done(command.error());
    }
    propose_as(*caller, *command, [this, caller, key, done](const Result<Decided>& decided) {
      const std::optional<ApiError> refused = refusal_to(*caller, decided);
      host_.observer().read(decided.ok() ? decided->sequence : 0, [this, caller, key, refused,
                                                                   done](const Observer::View& then) {
        services_->end(key);
        if (refused) return done(*refused);
        const std::optional<Entry> entry = services_->find(key);
        if (!entry) return done(ServiceView{.name = key.second, .tenant = key.first, .state = "deleting"});
        done(service_view(then, *entry, Viewer::of(caller, "", key.first), now_of(then)));
      });
    });
  });
}

void HostBackend::scale_service(const CallerPtr& caller, const std::string& service,
                                const std::string& tenant, int64_t replicas, const std::string& by,
                                Done<ServiceView> done) {
  if (replicas < 0 || replicas > kServiceReplicasMax) {
    return done(ApiError{ErrorKind::kInvalidArgument,
                         "replicas must be from 0 to " + std::to_string(kServiceReplicasMax), "replicas"});
  }
  change_service(
      caller, Action::kUpdateJob, service, tenant,
      [replicas, by = shown_by(*caller, by), service](const Job& record,
                                                      const ServiceSettings& settings) -> Answer<Command> {
        if (settings.scaling) return scales_itself(service, *settings.scaling);
        return relabel(record, {{std::string(kServiceReplicasLabel), std::to_string(replicas)}}, by);
      },
      std::move(done));
}

void HostBackend::scale_service_by_queue(const CallerPtr& caller, const std::string& service,
                                         const std::string& tenant, std::map<std::string, std::string> labels,
                                         const std::string& by, Done<ServiceView> done) {
  change_service(
      caller, Action::kUpdateJob, service, tenant,
      [labels = std::move(labels), by = shown_by(*caller, by), service](
          const Job& record, const ServiceSettings& before) -> Answer<Command> {
        const Answer<ServiceSettings> settings =
            read_settings(with_labels("", labels), before, SettingNames::kFields);
        if (!settings) return settings.error();
        if (settings->scaling && labels.contains(std::string(kServiceReplicasLabel)))
          return scales_itself(service, *settings->scaling);
        return relabel(record, scale_labels(*settings), by);
      },
      std::move(done));
}

void HostBackend::delete_service(const CallerPtr& caller, const std::string& service,
                                 const std::string& tenant, const std::string& by, Done<ServiceView> done) {
  change_service(
      caller, Action::kCancelJob, service, tenant,
      [by = shown_by(*caller, by)](const Job& record, const ServiceSettings& /*settings*/) {
        return Answer<Command>(CancelJob{.job = record.id, .by = by});
      },
      std::move(done));
}

}  // namespace gpusched::api
