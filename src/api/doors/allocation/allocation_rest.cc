#include "api/doors/allocation/allocation_rest.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "api/calls/trace_jobs.h"
#include "api/contract/names.h"
#include "api/contract/token.h"
#include "api/doors/allocation/allocation_ids.h"
#include "api/doors/allocation/lease_list.h"
#include "api/doors/jobs/job_wait.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/doors/pages.h"
#include "api/doors/rest_query.h"
#include "base/job_labels.h"
#include "host/core/system_clock.h"

namespace gpusched::api {
namespace {

constexpr std::string_view kPrefix = "/api/gpuscheduler/v1";
constexpr std::string_view kHealth = R"({"status":"ok"})";
constexpr std::size_t kHeartbeatsMax = 100'000;
/// A release is answered once the lease has ended, so that what it held counts no more; or after so long.
constexpr Duration kReleaseWait = seconds(10);
constexpr int64_t kSkipMax = int64_t{1} << 31;
constexpr int64_t kListDefault = 100;

std::string requester_of(const HttpRequest& request) {
  return shown_requester(request.requested_by, request.peer);
}

/// The last part of a path that names something: "gpu/ID", "gpu/ID/renew".
const std::string& id_in(const std::vector<std::string>& path) {
  const auto kind =
      std::ranges::find_if(path, [](const std::string& part) { return part == "gpu" || part == "api-keys"; });
  CHECK(kind != path.end() && kind + 1 != path.end());
  return *(kind + 1);
}

ApiError no_such_gpu() { return {ErrorKind::kJobNotFound, "GPU not found."}; }

/// Not by this scheduler since its start, which would repeat the answer. A secret is kept by nobody.
ApiError key_was_made() {
  return {ErrorKind::kKeyExists,
          "a key was made by an earlier request with this Idempotency-Key, and its secret was in that answer "
          "only; revoke that key if the secret is lost, and use a new Idempotency-Key",
          "Idempotency-Key"};
}

/// 16 digits that follow from the text.
std::string short_hex(std::string_view text) {
  std::string digits;
  for (const char byte : short_hash(text, 8)) {
    constexpr std::string_view kHexDigits = "0123456789abcdef";
    digits += kHexDigits[static_cast<unsigned char>(byte) >> 4];
    digits += kHexDigits[static_cast<unsigned char>(byte) & 15];
  }
  return digits;
}

void answer_once(const RestCallPtr& call, const RepeatedCalls::TurnPtr& turn, int status, std::string body) {
  if (turn != nullptr) turn->keep(status, body);
  call->send(status, std::move(body));
}

}  // namespace

void Heartbeats::note(JobId lease, Time at) {
  const std::lock_guard lock(mutex_);
  last_[lease] = at;
  if (last_.size() > kHeartbeatsMax) last_.erase(last_.begin());
}

Time Heartbeats::last(JobId lease) const {
  const std::lock_guard lock(mutex_);
  const auto found = last_.find(lease);
  return found == last_.end() ? Time{} : found->second;
}

std::span<const AllocationRest::RouteRow> AllocationRest::routes() {
  using enum HttpMethod;
  using enum access::Action;
  static const RouteRow kRoutes[] = {
      {kGet, "api/gpuscheduler/v1/health", kSeeHealth, &AllocationRest::health},
      {kPost, "api/gpuscheduler/v1/allocate", kSubmitJob, &AllocationRest::allocate},
      {kPost, "api/gpuscheduler/v1/gpus/allocate", kSubmitJob, &AllocationRest::allocate},
      {kGet, "api/gpuscheduler/v1/gpus", kSeeJob, &AllocationRest::list},
      {kGet, "api/gpuscheduler/v1/gpus/gpus", kSeeJob, &AllocationRest::list},
      {kGet, "api/gpuscheduler/v1/gpu/*", kSeeJob, &AllocationRest::get},
      {kGet, "api/gpuscheduler/v1/gpus/gpu/*", kSeeJob, &AllocationRest::get},
      {kDelete, "api/gpuscheduler/v1/gpu/*", kCancelJob, &AllocationRest::release},
      {kDelete, "api/gpuscheduler/v1/gpus/gpu/*", kCancelJob, &AllocationRest::release},
      {kPut, "api/gpuscheduler/v1/gpu/*/heartbeat", kSeeJob, &AllocationRest::heartbeat},
      {kPut, "api/gpuscheduler/v1/gpus/gpu/*/heartbeat", kSeeJob, &AllocationRest::heartbeat},
      {kPost, "api/gpuscheduler/v1/gpu/*/renew", kUpdateJob, &AllocationRest::renew},
      {kPost, "api/gpuscheduler/v1/gpus/gpu/*/renew", kUpdateJob, &AllocationRest::renew},
      {kPost, "api/gpuscheduler/v1/organizations", kCreateTenant, &AllocationRest::create_organization},
      {kPost, "api/gpuscheduler/v1/users", kCreateUser, &AllocationRest::create_user},
      {kGet, "api/gpuscheduler/v1/users", kSeeUser, &AllocationRest::list_users},
      {kPut, "api/gpuscheduler/v1/users/*", kUpdateUser, &AllocationRest::update_user},
      {kPost, "api/gpuscheduler/v1/api-keys", kCreateKey, &AllocationRest::create_key},
      {kGet, "api/gpuscheduler/v1/api-keys", kSeeKey, &AllocationRest::list_keys},
      {kDelete, "api/gpuscheduler/v1/api-keys/*", kRevokeKey, &AllocationRest::revoke_key},
  };
  return kRoutes;
}

bool AllocationRest::takes(std::string_view path) {
  return path.starts_with(kPrefix) && (path.size() == kPrefix.size() || path[kPrefix.size()] == '/');
}

bool AllocationRest::is_health(const HttpRequest& request) { return request.path == "/health"; }

void AllocationRest::handle(HttpRequest&& request, const RestCallPtr& call) {
  if (is_health(request)) return call->send(200, std::string(kHealth));
  name_call(request, call->note());
  const bool asks_for_health = call->note().line.action == access::Action::kSeeHealth;
  if (call->caller()->kind == access::CallerKind::kAnonymous && !asks_for_health) {
    return call->fail({ErrorKind::kUnauthenticated,
                       "Not authenticated: send `Authorization: Bearer <key>` with an API key."});
  }
  const auto kept = std::make_shared<HttpRequest>(std::move(request));
  with_cluster(call, [this, kept, call] { serve_route(*this, routes(), *kept, call); });
}

void AllocationRest::name_call(const HttpRequest& request, CallNote& note) {
  if (is_health(request)) return note.name(access::Action::kSeeHealth, {});
  name_by_route(routes(), request, note);
}

void AllocationRest::with_cluster(const RestCallPtr& call, std::function<void()> then) {
  if (!cluster().empty()) return then();
  // The door's own question: its name is told to whoever has an id.
  backend_.get_cluster(shared_token_caller(), [this, call, then = std::move(then)](Answer<ClusterView> view) {
    if (!view) return call->fail(view.error());
    {
      const std::lock_guard lock(mutex_);
      cluster_ = view->name;
    }
    then();
  });
}

std::string AllocationRest::cluster() const {
  const std::lock_guard lock(mutex_);
  return cluster_;
}

LeaseScene AllocationRest::scene_of(JobId lease, const DeviceTable* devices) const {
  return {.cluster = cluster(), .devices = devices, .last_seen = heartbeats_.last(lease), .now = wall_now()};
}

void AllocationRest::health(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  call->send(200, std::string(kHealth));
}

std::string AllocationRest::repeats(const HttpRequest& request, const RestCallPtr& call) {
  if (request.idempotency_key.empty()) return {};
  const access::Caller& caller = *call->caller();
  return std::string(to_string(caller.kind)) + ' ' + caller.name + '\n' + request.idempotency_key;
}

void AllocationRest::once(const HttpRequest& request, const RestCallPtr& call,
                          const std::function<void(const RepeatedCalls::TurnPtr&)>& use) {
  if (request.idempotency_key.empty()) return use(nullptr);
  if (auto problem = check_request_key(request.idempotency_key, "Idempotency-Key"))
    return call->fail(*problem);
  const access::Caller& caller = *call->caller();
  std::string path = request.path;
  while (path.ends_with('/')) path.pop_back();
  Answer<RepeatedCalls::Begun> begun = RepeatedCalls::begin(
      repeated_,
      {.caller = std::string(to_string(caller.kind)) + " " + caller.name,
       .key = request.idempotency_key,
       .content = std::string(to_string(request.method)) + " " + path + " " + request.body},
      wall_now());
  if (!begun) return call->fail(begun.error());
  if (begun->known) return call->send(begun->known->status, begun->known->body);
  use(begun->turn);
}

void AllocationRest::allocate(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  if (!request.idempotency_key.empty()) {
    if (auto problem = check_request_key(request.idempotency_key, "Idempotency-Key"))
      return call->fail(*problem);
  }
  Answer<SubmitRequest> parsed = parse_allocation(request.body, request.idempotency_key, cluster());
  if (!parsed) return call->fail(parsed.error());
  parsed->by = requester_of(request);
  call->note().name_user(*parsed);
  trace_jobs(*parsed, request.traceparent, call->note());
  admission_.allocate(call->caller(), std::move(*parsed), [this, call](Answer<Submitted> answer) {
    if (!answer) return call->fail(answer.error());
    call->note().name_jobs(*answer);
    call->send(202, allocated_json(cluster(), answer->first_job));
  });
}

void AllocationRest::list(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  RestQuery query(request.query);
  LeaseListRequest asked{.status = query.text("status").value_or(""),
                         .health = query.text("health").value_or("")};
  if (!asked.status.empty() && !is_lease_status(asked.status)) {
    query.fail("status", "must be PROVISIONING, AVAILABLE, BUSY, DEPROVISIONING, DEPROVISIONED or ERROR");
  }
  if (!asked.health.empty() && !is_lease_health(asked.health))
    query.fail("health", "must be HEALTHY, UNHEALTHY, DEGRADED or UNKNOWN");
  asked.skip = query.count("skip", 0, kSkipMax);
  asked.limit = std::min(query.count("limit", kListDefault, INT64_MAX), kPageMax);
  if (query.problem()) return call->fail(*query.problem());
  backend_.list_nodes(call->caller(), [this, call, asked](Answer<std::vector<NodeView>> nodes) {
    if (!nodes) return call->fail(nodes.error());
    list_leases(backend_, call, asked, devices_of(*nodes),
                [this](JobId lease, const DeviceTable& devices) { return scene_of(lease, &devices); });
  });
}

void AllocationRest::with_lease(const Segments& path, const RestCallPtr& call,
                                std::function<void(JobView)> use) {
  const auto number = number_of_allocation_id(cluster(), AllocationIdKind::kGpu, id_in(path));
  if (!number || *number == 0) return call->fail(no_such_gpu());
  const JobId id{*number};
  call->note().line.resource = job_name(id);
  backend_.get_job(call->caller(), id, {}, [this, call, id, use = std::move(use)](Answer<JobView> job) {
    if (!job) return answer_unseen(call, id, job.error());
    // Its specification is not for everybody who may see it: whether it is a lease the backend says.
    JobFilter leases;
    leases.labels = {{std::string(kLeaseLabel), std::nullopt}};
    backend_.get_jobs(call->caller(), {id}, std::move(leases), [call, use](Answer<JobPage> page) {
      if (!page) return call->fail(page.error());
      if (page->jobs.empty()) return call->fail(no_such_gpu());
      use(std::move(page->jobs.front()));
    });
  });
}

void AllocationRest::answer_unseen(const RestCallPtr& call, JobId id, const ApiError& error) {
  if (error.kind != ErrorKind::kJobNotFound || !error.hidden) return call->fail(error);
  // The door's own question: other jobs are as if they were not there.
  JobFilter leases;
  leases.labels = {{std::string(kLeaseLabel), std::nullopt}};
  leases.details = {.name = false, .message = false, .place = false, .gpus = false};
  backend_.get_jobs(
      shared_token_caller(), {id}, std::move(leases), [call, error](const Answer<JobPage>& page) {
        if (!page || page->jobs.empty()) return call->fail(error);
        call->fail({ErrorKind::kPermissionDenied, "You do not have permission to access this resource."});
      });
}

void AllocationRest::show(const RestCallPtr& call, JobView job, RepeatedCalls::TurnPtr turn) {
  backend_.list_nodes(call->caller(), [this, call, job = std::move(job),
                                       turn = std::move(turn)](Answer<std::vector<NodeView>> nodes) {
    if (!nodes) return call->fail(nodes.error());
    const DeviceTable devices = devices_of(*nodes);
    answer_once(call, turn, 200, lease_json(job, scene_of(job.id, &devices)));
  });
}

void AllocationRest::get(const HttpRequest&, const Segments& path, const RestCallPtr& call) {
  with_lease(path, call, [this, call](JobView job) { show(call, std::move(job)); });
}

// A repeated release is answered by where the lease stands then, which is better than the first answer.
void AllocationRest::release(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  if (!request.idempotency_key.empty()) {
    if (auto problem = check_request_key(request.idempotency_key, "Idempotency-Key"))
      return call->fail(*problem);
  }
  with_lease(path, call, [this, call, by = requester_of(request)](const JobView& job) {
    backend_.cancel(as_user_of(call->caller(), job.tenant), job.id, {}, by,
                    [this, call, id = job.id](Answer<Unit> answer) {
                      // A repeated release is answered like the first.
                      if (!answer && answer.error().kind != ErrorKind::kJobFinished)
                        return call->fail(answer.error());
                      // A waiting call must be told on the server's thread that its client has gone.
                      server_->run_after(Duration{}, [this, call, id] {
                        wait_for_job(backend_, *server_, call, id, {}, kReleaseWait,
                                     [scene = scene_of(id, nullptr)](const JobView& ended) {
                                       return lease_json(ended, scene);
                                     });
                      });
                    });
  });
}

void AllocationRest::heartbeat(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  if (const auto problem = check_heartbeat(request.body)) return call->fail(*problem);
  with_lease(path, call, [this, call](JobView job) {
    if (!is_final(job.state)) heartbeats_.note(job.id, wall_now());
    show(call, std::move(job));
  });
}

void AllocationRest::renew(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  const Answer<Duration> length = parse_renewal(request.body);
  if (!length) return call->fail(length.error());
  std::string mark = repeats(request, call);
  if (!mark.empty()) mark = " [renewal " + short_hex(mark + '\n' + std::to_string(length->ns)) + "]";
  once(request, call, [&](const RepeatedCalls::TurnPtr& turn) {
    with_lease(path, call,
               [this, call, length = *length, by = requester_of(request), mark, turn](const JobView& job) {
                 extend_once(call, job, length, by, mark, turn);
               });
  });
}

// The change and the mark of its request are one record of the journal: the lease's history shows both.
void AllocationRest::extend_once(const RestCallPtr& call, const JobView& job, Duration by,
                                 const std::string& asked_by, const std::string& mark,
                                 const RepeatedCalls::TurnPtr& turn) {
  if (mark.empty()) return extend(call, job, by, asked_by, turn);
  backend_.get_history(call->caller(), job.id, {}, [=, this](const Answer<HistoryView>& history) {
    if (!history) return call->fail(history.error());
    const Time oldest = wall_now() - RepeatedCalls::kKept;
    const bool is_done = std::ranges::any_of(history->lines, [&](const HistoryLine& line) {
      return line.at >= oldest && line.by.ends_with(mark);
    });
    if (is_done) return show(call, job, turn);
    extend(call, job, by, asked_by + mark, turn);
  });
}

void AllocationRest::extend(const RestCallPtr& call, const JobView& job, Duration by,
                            const std::string& asked_by, RepeatedCalls::TurnPtr turn) {
  if (is_final(job.state) || job.is_being_cancelled) {
    return call->fail(
        {ErrorKind::kJobFinished, "The lease has ended, or is being ended; allocate another GPU instead."});
  }
  // A time limit counts from the start; before it the lease is as long as it is asked for.
  const Duration past =
      job.started_at.valid() ? std::max(wall_now() - job.started_at, Duration{}) : Duration{};
  // In whole milliseconds, as limits are kept.
  const Duration limit = milliseconds((past + by).ms());
  JobUpdate update;
  update.by = asked_by;
  // It never becomes shorter, however many renew it at a time. One that stays as it is is asked for all the
  // same, so that whoever may not renew it is told so.
  update.max_runtime_at_least = limit;
  backend_.update_job(as_user_of(call->caller(), job.tenant), job.id, {}, std::move(update),
                      [this, call, turn = std::move(turn)](Answer<JobView> changed) {
                        if (!changed) return call->fail(changed.error());
                        show(call, std::move(*changed), turn);
                      });
}

void AllocationRest::create_organization(const HttpRequest& request, const Segments&,
                                         const RestCallPtr& call) {
  Answer<TenantRequest> parsed = parse_organization(request.body);
  if (!parsed) return call->fail(parsed.error());
  if (!request.idempotency_key.empty()) {
    if (auto problem = check_request_key(request.idempotency_key, "Idempotency-Key"))
      return call->fail(*problem);
    parsed->request_key = request.idempotency_key;
  }
  parsed->by = requester_of(request);
  backend_.create_tenant(call->caller(), std::move(*parsed), [this, call](Answer<TenantView> tenant) {
    if (!tenant) return call->fail(tenant.error());
    call->note().line.resource = tenant_name(tenant->id);
    call->send(201, organization_json(cluster(), *tenant));
  });
}

void AllocationRest::create_key(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  const std::string repeated = repeats(request, call);
  Answer<KeyRequest> parsed = parse_allocation_key(request.body, cluster(), repeated);
  if (!parsed) return call->fail(parsed.error());
  parsed->by = requester_of(request);
  // A user means a key of its own, unless it names another user.
  const std::string& holder = call->caller()->name;
  if (!parsed->person && call->caller()->kind == access::CallerKind::kPerson)
    parsed->person = person_of_key_name(holder.substr(holder.rfind('/') + 1));
  once(request, call, [&](const RepeatedCalls::TurnPtr& turn) {
    const bool is_marked = !repeated.empty() && !parsed->person;
    backend_.create_key(call->caller(), std::move(*parsed),
                        [this, call, is_marked, turn](Answer<KeyView> key) {
                          if (!key && is_marked && key.error().kind == ErrorKind::kKeyExists)
                            return call->fail(key_was_made());
                          if (!key) return call->fail(key.error());
                          call->note().line.resource = key_name(key->id);
                          answer_once(call, turn, 201, key_json(cluster(), *key));
                        });
  });
}

void AllocationRest::list_keys(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  KeyFilter filter;
  filter.limit = kPageMax;
  backend_.list_keys(call->caller(), std::move(filter), [this, call](Answer<KeyPage> page) {
    if (!page) return call->fail(page.error());
    std::vector<std::string> records;
    records.reserve(page->keys.size());
    for (const KeyView& key : page->keys) records.push_back(key_json(cluster(), key));
    call->send(200, list_json(records));
  });
}

void AllocationRest::revoke_key(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  const auto number = number_of_allocation_id(cluster(), AllocationIdKind::kKey, id_in(path));
  if (!number || *number == 0) return call->fail({ErrorKind::kKeyNotFound, "API key not found."});
  const KeyId id{*number};
  call->note().line.resource = key_name(id);
  once(request, call, [&](const RepeatedCalls::TurnPtr& turn) {
    backend_.revoke_key(call->caller(), id, requester_of(request), [this, call, turn](Answer<KeyView> key) {
      if (!key) return call->fail(key.error());
      answer_once(call, turn, 200, key_json(cluster(), *key));
    });
  });
}

}  // namespace gpusched::api
