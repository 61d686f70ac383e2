#include "api/backend/anonymous_backend.h"

#include <mutex>

#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/views/state_views.h"

namespace gpusched::api {
namespace {

constexpr const char* kHow =
    "; send the shared token, the content of the scheduler's DATA_DIR/token (gpu-cli run as root or as the "
    "scheduler's user finds it by itself; otherwise give a copy with --token-file)";

ApiError denied(const std::string& what) { return {ErrorKind::kPermissionDenied, what + kHow}; }

ApiError operators_only(const char* what) {
  return denied(std::string("callers without a credential may not ") + what);
}

ApiError not_open(std::string_view tenant) {
  return {ErrorKind::kTenantNotFound,
          "no such tenant, or none that callers without a credential may use: " +
              std::string(tenant.substr(0, 64)) + "; create it first, use default, or send the shared token",
          "tenant_id"};
}

ApiError beyond(std::string field, const std::string& what, const std::string& most) {
  return {ErrorKind::kPermissionDenied,
          "callers without a credential cannot give " + what + " above " + most +
              "; remove or lower it, or send the shared token",
          std::move(field)};
}

std::optional<ApiError> check_priority(std::optional<int32_t> priority, const AnonymousLimits& limits) {
  if (priority.value_or(0) <= limits.priority_max) return std::nullopt;
  return beyond("priority", "a job a priority", std::to_string(limits.priority_max));
}

/// What such a caller may ask for, and with the mark of one.
std::optional<ApiError> take_jobs(SubmitRequest& request, const AnonymousLimits& limits) {
  for (JobRequest& job : request.jobs) {
    if (auto refused = check_priority(job.priority, limits)) return refused;
    const SpecPeek peek = peek_spec(job.spec);
    if (!peek.user.empty()) {
      ApiError error = denied(
          "callers without a credential cannot set the user of a job; remove user, and the job runs as its "
          "node's default user");
      error.field = "user";
      return error;
    }
    if (spec_names_credential(job.spec)) {
      ApiError error = operators_only("use a tenant's registry credential");
      error.field = "registry_credential";
      return error;
    }
    mark_anonymous(job.spec);
  }
  return std::nullopt;
}

/// As such a caller may see a job of an open tenant: of one that was submitted with a credential, only that
/// it is there and how far.
JobView shown(JobView job) {
  if (spec_is_anonymous(job.spec.view())) return job;
  job.spec = {};
  job.name.clear();
  job.message.clear();
  job.watch_detail.clear();
  job.move_detail.clear();
  return job;
}

JobPage shown(JobPage page) {
  for (JobView& job : page.jobs) job = shown(std::move(job));
  return page;
}

bool has_guarantee(const TenantSettings& given) {
  return given.guaranteed_gpus || given.guaranteed_gpu_memory_mb || given.guaranteed_cpu_milli ||
         given.guaranteed_memory_mb || given.guaranteed_jobs;
}

/// What only an operator says of a tenant.
std::optional<ApiError> check_tenant_request(const TenantRequest& request, const AnonymousLimits& limits) {
  if (request.priority_tier.value_or(0) > limits.priority_tier_max)
    return beyond("priority_tier", "a tenant a priority tier", std::to_string(limits.priority_tier_max));
  if (request.weight_milli.value_or(0) > limits.weight_milli_max)
    return beyond("fair_share_weight", "a tenant a weight", std::to_string(limits.weight_milli_max / 1'000));
  if (has_guarantee(request)) return operators_only("guarantee a tenant anything");
  if (request.anonymous == false) return operators_only("close a tenant to callers without a credential");
  return std::nullopt;
}

/// A name that a caller without a credential gives itself is shown as such.
std::string anonymous(const std::string& by) { return by.empty() ? "anonymous" : "anonymous: " + by; }

}  // namespace

void AnonymousBackend::with_tenant(const std::string& tenant, std::function<void(const std::string&)> use,
                                   std::function<void(ApiError)> refuse) const {
  const auto id = tenant.empty() ? std::optional(kDefaultTenant) : parse_tenant_id(tenant);
  if (id && tenants_.contains(*id)) return use(tenant_name(*id));
  // Asked of a state that has all writes that were answered: it may be new.
  inner_.get_tenant(
      tenant, [this, tenant, use = std::move(use), refuse = std::move(refuse)](Answer<TenantView> found) {
        if (!found && found.error().kind == ErrorKind::kTenantAmbiguous)
          return with_open_tenant_named(tenant, use, refuse);
        if (!found || !tenants_.contains(found->id)) return refuse(not_open(tenant));
        use(tenant_name(found->id));
      });
}

void AnonymousBackend::with_open_tenant_named(const std::string& name,
                                              std::function<void(const std::string&)> use,
                                              std::function<void(ApiError)> refuse) const {
  inner_.list_tenants([this, name, use = std::move(use),
                       refuse = std::move(refuse)](const Answer<std::vector<TenantView>>& tenants) {
    if (!tenants) return refuse(tenants.error());
    std::vector<TenantId> open;
    for (const TenantView& tenant : *tenants) {
      if (tenant.settings.name == name && tenants_.contains(tenant.id)) open.push_back(tenant.id);
    }
    if (open.empty()) return refuse(not_open(name));
    if (open.size() > 1) return refuse(ambiguous_tenant(name, open));
    use(tenant_name(open.front()));
  });
}

void AnonymousBackend::with_job(JobId job, const std::string& tenant, std::function<void(const JobView&)> use,
                                std::function<void(ApiError)> refuse) const {
  inner_.get_job(job, tenant,
                 [this, job, use = std::move(use), refuse = std::move(refuse)](Answer<JobView> found) {
                   if (!found) return refuse(found.error());
                   if (!tenants_.contains(found->tenant))
                     return refuse({ErrorKind::kJobNotFound, "no such job: " + job_name(job)});
                   use(*found);
                 });
}

void AnonymousBackend::with_own_job(JobId job, const std::string& tenant,
                                    std::function<void(const std::string&)> use,
                                    std::function<void(ApiError)> refuse) const {
  with_job(
      job, tenant,
      [job, use = std::move(use), refuse](const JobView& found) {
        if (!spec_is_anonymous(found.spec.view()))
          return refuse(denied(job_name(job) +
                               " was submitted with a credential and is visible only to callers with one"));
        use(tenant_name(found.tenant));
      },
      refuse);
}

void AnonymousBackend::submit(SubmitRequest request, Done<Submitted> done) {
  if (auto refused = take_jobs(request, limits_)) return done(std::move(*refused));
  request.by = anonymous(request.by);
  const auto kept = std::make_shared<SubmitRequest>(std::move(request));
  with_tenant(
      kept->tenant,
      [this, kept, done](const std::string& tenant) {
        kept->tenant = tenant;
        inner_.submit(std::move(*kept), done);
      },
      done);
}

void AnonymousBackend::plan(SubmitRequest request, Done<PlanView> done) {
  if (auto refused = take_jobs(request, limits_)) return done(std::move(*refused));
  const auto kept = std::make_shared<SubmitRequest>(std::move(request));
  with_tenant(
      kept->tenant,
      [this, kept, done](const std::string& tenant) {
        kept->tenant = tenant;  // Named, so that it sees no other tenant's jobs.
        inner_.plan(std::move(*kept), done);
      },
      done);
}

void AnonymousBackend::create_tenant(TenantRequest request, Done<TenantView> done) {
  if (auto refused = check_tenant_request(request, limits_)) return done(std::move(*refused));
  request.anonymous = true;
  request.by = anonymous(request.by);
  const std::string above = request.parent.value_or("");
  if (above.empty()) return inner_.create_tenant(std::move(request), std::move(done));
  with_tenant(
      above,
      [this, request, done](const std::string& parent) mutable {
        request.parent = parent;
        inner_.create_tenant(std::move(request), done);
      },
      [done](ApiError error) {
        if (error.kind == ErrorKind::kTenantAmbiguous) error.field = "parent_id";
        done(std::move(error));
      });
}

void AnonymousBackend::update_tenant(const std::string& tenant, TenantRequest request,
                                     Done<TenantView> done) {
  if (auto refused = check_tenant_request(request, limits_)) return done(std::move(*refused));
  request.by = anonymous(request.by);
  with_tenant(
      tenant,
      [this, request, done](const std::string& id) {
        if (id == tenant_name(kDefaultTenant)) return done(operators_only("change the default tenant"));
        inner_.update_tenant(id, request, done);
      },
      done);
}

void AnonymousBackend::delete_tenant(const std::string& tenant, const std::string& by, Done<Unit> done) {
  with_tenant(
      tenant,
      [this, by, done](const std::string& id) {
        if (id == tenant_name(kDefaultTenant)) return done(operators_only("delete the default tenant"));
        inner_.delete_tenant(id, anonymous(by), done);
      },
      done);
}

void AnonymousBackend::get_tenant(const std::string& tenant, Done<TenantView> done) {
  with_tenant(tenant, [this, done](const std::string& id) { inner_.get_tenant(id, done); }, done);
}

void AnonymousBackend::list_tenants(Done<std::vector<TenantView>> done) {
  inner_.list_tenants([this, done = std::move(done)](Answer<std::vector<TenantView>> found) {
    if (found)
      std::erase_if(*found, [this](const TenantView& tenant) { return !tenants_.contains(tenant.id); });
    done(std::move(found));
  });
}

// What operators do.

void AnonymousBackend::edit_cluster(EditsRequest, Done<EditsView> done) {
  done(operators_only("change the cluster as a whole"));
}
void AnonymousBackend::confirm_dead(const std::string&, const std::string&, Done<NodeView> done) {
  done(operators_only("confirm that a node is dead"));
}
void AnonymousBackend::remove_node(const std::string&, const std::string&, Done<Unit> done) {
  done(operators_only("remove a node"));
}
void AnonymousBackend::set_condition(const std::string&, uint32_t, DeviceCondition, const std::string&,
                                     const std::string&, Done<NodeView> done) {
  done(operators_only("quarantine or release a GPU"));
}
void AnonymousBackend::drain_node(const std::string&, const std::string&, const std::string&,
                                  Done<NodeView> done) {
  done(operators_only("drain a node"));
}
void AnonymousBackend::resume_node(const std::string&, const std::string&, Done<NodeView> done) {
  done(operators_only("put a node back into service"));
}
void AnonymousBackend::pause_starts(bool paused, const std::string&, const std::string&,
                                    Done<ClusterView> done) {
  done(operators_only(paused ? "pause the cluster" : "resume a paused cluster"));
}
void AnonymousBackend::reboot_node(const std::string&, const std::string&, Done<NodeView> done) {
  done(operators_only("reboot a node"));
}
void AnonymousBackend::label_node(const std::string&, std::vector<Label>, std::vector<std::string>,
                                  Done<NodeView> done) {
  done(operators_only("label a node"));
}
void AnonymousBackend::make_reservation(ReservationRequest, Done<ReservationView> done) {
  done(operators_only("reserve nodes"));
}
void AnonymousBackend::cancel_reservation(const std::string&, Done<Unit> done) {
  done(operators_only("cancel a reservation"));
}
void AnonymousBackend::get_moves(MovesRequest, Done<MovesView> done) {
  done(operators_only("request proposals of moves"));
}
void AnonymousBackend::apply_moves(ApplyMoves, Done<MoveProposalView> done) {
  done(operators_only("move jobs"));
}

// One job.

void AnonymousBackend::cancel(JobId job, const std::string& tenant, const std::string& by, Done<Unit> done) {
  with_own_job(
      job, tenant,
      [this, job, by, done](const std::string& id) { inner_.cancel(job, id, anonymous(by), done); }, done);
}

void AnonymousBackend::update_job(JobId job, const std::string& tenant, JobUpdate update,
                                  Done<JobView> done) {
  if (auto refused = check_priority(update.priority, limits_)) return done(std::move(*refused));
  update.by = anonymous(update.by);
  with_own_job(
      job, tenant,
      [this, job, update = std::move(update), done](const std::string& id) {
        inner_.update_job(job, id, update, done);
      },
      done);
}

void AnonymousBackend::hold_job(JobId job, const std::string& tenant, bool held, const std::string& by,
                                Done<JobView> done) {
  with_own_job(
      job, tenant,
      [this, job, held, by, done](const std::string& id) {
        inner_.hold_job(job, id, held, anonymous(by), done);
      },
      done);
}

void AnonymousBackend::requeue_job(JobId job, const std::string& tenant, const std::string& by,
                                   Done<JobView> done) {
  with_own_job(
      job, tenant,
      [this, job, by, done](const std::string& id) { inner_.requeue_job(job, id, anonymous(by), done); },
      done);
}

void AnonymousBackend::get_history(JobId job, const std::string& tenant, Done<HistoryView> done) {
  with_own_job(
      job, tenant, [this, job, done](const std::string& id) { inner_.get_history(job, id, done); }, done);
}

void AnonymousBackend::get_job(JobId job, const std::string& tenant, Done<JobView> done) {
  with_job(job, tenant, [done](const JobView& found) { done(shown(found)); }, done);
}

/// A watch that begins once it is known that the job may be seen, and ends when the caller wishes, whichever
/// comes first.
std::shared_ptr<void> AnonymousBackend::watch_job(JobId job, const std::string& tenant,
                                                  Done<JobView> changed) {
  struct Watch {
    std::mutex mutex;
    bool dropped = false;
    std::shared_ptr<void> token;
  };
  const auto watch = std::make_shared<Watch>();
  with_job(
      job, tenant,
      [this, job, watch, changed](const JobView& found) {
        std::shared_ptr<void> token =
            inner_.watch_job(job, tenant_name(found.tenant), [changed](Answer<JobView> view) {
              if (!view) return changed(view.error());
              changed(shown(std::move(*view)));
            });
        const std::lock_guard lock(watch->mutex);
        if (!watch->dropped) watch->token = std::move(token);
      },
      changed);
  return {static_cast<void*>(watch.get()), [watch](void*) {
            std::shared_ptr<void> token;
            const std::lock_guard lock(watch->mutex);
            watch->dropped = true;
            token.swap(watch->token);
          }};
}

void AnonymousBackend::explain_job(JobId job, const std::string& tenant, Done<ExplainView> done) {
  with_own_job(
      job, tenant, [this, job, done](const std::string& id) { inner_.explain_job(job, id, done); }, done);
}

void AnonymousBackend::read_log(LogRequest request, Done<LogPiece> done) {
  request.anonymous = true;
  inner_.read_log(std::move(request), std::move(done));
}

std::shared_ptr<SessionHandle> AnonymousBackend::open_session(SessionRequest request,
                                                              std::shared_ptr<SessionPeer> peer) {
  request.anonymous = true;
  return inner_.open_session(std::move(request), std::move(peer));
}

void AnonymousBackend::read_file(FileRequest request, Done<FilePiece> done) {
  request.anonymous = true;
  inner_.read_file(std::move(request), std::move(done));
}

// Several jobs, and the cluster.

void AnonymousBackend::list_jobs(JobFilter filter, Done<JobPage> done) {
  filter.anonymous = true;
  inner_.list_jobs(std::move(filter), [done = std::move(done)](Answer<JobPage> page) {
    if (!page) return done(page.error());
    done(shown(std::move(*page)));
  });
}

void AnonymousBackend::get_jobs(std::vector<JobId> ids, JobFilter filter, Done<JobPage> done) {
  filter.anonymous = true;
  inner_.get_jobs(std::move(ids), std::move(filter), [done = std::move(done)](Answer<JobPage> page) {
    if (!page) return done(page.error());
    done(shown(std::move(*page)));
  });
}

std::shared_ptr<void> AnonymousBackend::watch_changes(std::function<void(const ChangeNotice&)> changed) {
  return inner_.watch_changes(
      std::move(changed));  // Numbers of jobs; what they are is asked for by get_jobs.
}

void AnonymousBackend::list_reservations(Done<std::vector<ReservationView>> done) {
  inner_.list_reservations(std::move(done));
}
void AnonymousBackend::list_nodes(Done<std::vector<NodeView>> done) { inner_.list_nodes(std::move(done)); }
void AnonymousBackend::get_node(const std::string& node, Done<NodeView> done) {
  inner_.get_node(node, std::move(done));
}
void AnonymousBackend::get_cluster(Done<ClusterView> done) { inner_.get_cluster(std::move(done)); }
void AnonymousBackend::get_quality(const std::string& tenant, Done<QualityView> done) {
  with_tenant(tenant, [this, done](const std::string& id) { inner_.get_quality(id, done); }, done);
}
void AnonymousBackend::get_metrics(Done<MetricsView> done) { inner_.get_metrics(std::move(done)); }

}  // namespace gpusched::api
