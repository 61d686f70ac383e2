#include "api/doors/jobs/jobs_rest.h"

#include <algorithm>

#include "api/calls/trace_jobs.h"
#include "api/contract/names.h"
#include "api/contract/token.h"
#include "api/doors/jobs/job_wait.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/doors/jobs/jobs_watch.h"
#include "api/doors/jobs/views_json.h"
#include "api/doors/pages.h"
#include "api/doors/rest_query.h"
#include "api/doors/session/log_relay.h"
#include "base/limits.h"
#include "host/core/system_clock.h"

namespace gpusched::api {
namespace {

constexpr int64_t kOffsetMax = int64_t{1} << 40;

std::string requester_of(const HttpRequest& request) {
  return shown_requester(request.requested_by, request.peer);
}

/// Sends what `to_json` makes of a good answer.
template <typename T>
Done<T> answer_with(const RestCallPtr& call, std::string (*to_json)(const T&), int status = 200) {
  return [call, to_json, status](Answer<T> answer) {
    if (!answer) return call->fail(answer.error());
    if constexpr (std::is_same_v<T, TenantView>) call->note().line.resource = tenant_name(answer->id);
    call->send(status, to_json(*answer));
  };
}

/// The jobs that a list or a watch is about.
JobFilter read_filter(RestQuery& query) {
  JobFilter filter{.tenant = query.text("tenant_id").value_or("")};
  if (const auto state = query.text("state")) {
    filter.state = parse_job_state(*state);
    if (!filter.state) {
      query.fail("state", "must be pending, scheduled, running, completed, failed, cancelled or preempted");
    }
  }
  return filter;
}

}  // namespace

std::span<const JobsRest::RouteRow> JobsRest::routes() {
  using enum HttpMethod;
  using enum access::Action;
  static const RouteRow kRoutes[] = {
      {kGet, "health", kSeeHealth, &JobsRest::health},
      {kGet, "api/v1/health", kSeeHealth, &JobsRest::health},
      {kPost, "api/v1/jobs", kSubmitJob, &JobsRest::submit},
      {kPost, "api/v1/jobs:plan", kPlanJob, &JobsRest::plan},
      {kGet, "api/v1/jobs", kSeeJob, &JobsRest::list_jobs},
      {kGet, "api/v1/jobs/*", kSeeJob, &JobsRest::get_job},
      {kDelete, "api/v1/jobs/*", kCancelJob, &JobsRest::cancel_job},
      {kGet, "api/v1/jobs/*/explain", kDescribeJob, &JobsRest::explain_job},
      {kGet, "api/v1/jobs/*/logs", kReadJobOutput, &JobsRest::read_log},
      {kPost, "api/v1/tenants", kCreateTenant, &JobsRest::create_tenant},
      {kGet, "api/v1/tenants", kSeeTenant, &JobsRest::list_tenants},
      {kGet, "api/v1/tenants/*", kSeeTenant, &JobsRest::get_tenant},
      {kPut, "api/v1/tenants/*", kUpdateTenant, &JobsRest::update_tenant},
      {kDelete, "api/v1/tenants/*", kDeleteTenant, &JobsRest::delete_tenant},
      {kGet, "api/v1/cluster/status", kSeeCluster, &JobsRest::cluster},
      {kGet, "api/v1/nodes", kSeeNode, &JobsRest::nodes},
      {kPost, "api/v1/nodes/*/confirm-dead", kConfirmNodeDead, &JobsRest::confirm_dead},
      {kPost, "api/v1/nodes/*/gpus/*/condition", kSetDevice, &JobsRest::set_condition},
      {kGet, "api/v1/ws", kSeeJob, &JobsRest::watch},
  };
  return kRoutes;
}

void JobsRest::handle(HttpRequest&& request, const RestCallPtr& call) {
  if (request.method == HttpMethod::kPost && request.path == "/api/v1/jobs") {
    call->note().name(access::Action::kSubmitJob, {});
    return submit(request, {}, call);
  }
  serve_route(*this, routes(), request, call);
}

void JobsRest::name_call(const HttpRequest& request, CallNote& note) {
  name_by_route(routes(), request, note);
}

void JobsRest::health(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  const HealthView health = backend_.health();
  // Strangers elsewhere learn the word, and nothing about the machine.
  const bool is_near = is_loopback(request.peer) || request.peer.starts_with("unix:");
  const bool is_stranger = call->caller()->kind == access::CallerKind::kAnonymous && !is_near;
  HttpResponse response{.status = health.serving ? 200 : 503,
                        .body = is_stranger
                                    ? health_word_json(health)
                                    : health_json(health, version_, wall_now(),
                                                  is_loopback(request.peer) ? token_file_ : std::string())};
  if (!health.serving) response.headers.emplace_back("Retry-After", "1");
  call->send(std::move(response));
}

void JobsRest::submit(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  std::vector<std::string> ignored;
  Answer<SubmitRequest> parsed = parse_submit(request.body, backend_.containers_possible(), &ignored);
  if (!parsed) return call->fail(parsed.error());
  if (!request.idempotency_key.empty()) {
    if (auto problem = check_request_key(request.idempotency_key, "Idempotency-Key"))
      return call->fail(*problem);
    parsed->request_key = request.idempotency_key;
  }
  parsed->by = requester_of(request);
  call->note().name_user(*parsed);
  trace_jobs(*parsed, request.traceparent, call->note());
  backend_.submit(
      call->caller(), std::move(*parsed),
      [this, call, ignored = std::move(ignored)](Answer<Submitted> answer) {
        if (!answer) return call->fail(answer.error());
        call->note().name_jobs(*answer);
        if (!pace_.take()) return call->send_at_flush(201, submitted_json(*answer, ignored));
        // It is accepted, whether or not its wait can be looked up.
        backend_.get_job(
            call->caller(), answer->first_job, {},
            [call, ignored, submitted = *answer](const Answer<JobView>& job) {
              call->send(201, submitted_json(submitted, ignored, job ? job->estimated_wait : std::nullopt));
            });
      });
}

void JobsRest::plan(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  Answer<SubmitRequest> parsed = parse_submit(request.body, backend_.containers_possible());
  if (!parsed) return call->fail(parsed.error());
  backend_.plan(call->caller(), std::move(*parsed), answer_with<PlanView>(call, plan_json));
}

void JobsRest::list_jobs(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  RestQuery query(request.query);
  JobFilter filter = read_filter(query);
  filter.limit = std::min(query.count("limit", 50, INT64_MAX), kPageMax);
  filter.offset = query.count("offset", 0, kOffsetMax);
  if (const auto token = query.text("page_token")) {
    const auto before = parse_job_id(*token);
    if (!before) query.fail("page_token", "is none that was given out");
    if (filter.offset > 0) query.fail("offset", "must not stand beside page_token, which knows its place");
    filter.before = before.value_or(JobId{});
  }
  if (query.problem()) return call->fail(*query.problem());
  backend_.list_jobs(call->caller(), std::move(filter), [call](Answer<JobPage> page) {
    // A list for a tenant that is not there, or not yet, is empty.
    if (!page && page.error().kind == ErrorKind::kTenantNotFound) page = JobPage{.total = 0};
    if (!page) return call->fail(page.error());
    call->send(200, job_page_json(*page));
  });
}

void JobsRest::watch(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  RestQuery query(request.query);
  ChangesWanted wanted{.filter = read_filter(query), .nodes = !query.text("nodes") || query.flag("nodes")};
  wanted.since = read_resumption(request, query);
  if (query.problem()) return call->fail(*query.problem());
  if (const auto problem = check_upgrade(request)) return call->fail(*problem);
  call->note().line.door = audit::Door::kWebSocket;
  send_changes(backend_, *server_, call, socket_wire(call, request.websocket_key), jobs_change_format(),
               std::move(wanted));
}

void JobsRest::get_job(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  const auto job = parse_job_id(path[3]);
  if (!job) return call->fail(no_such_job(path[3]));
  RestQuery query(request.query);
  const std::string tenant = query.text("tenant_id").value_or("");
  Duration wait;
  if (const auto text = query.text("wait")) {
    const auto given = parse_duration(*text);
    if (!given || *given > kWaitMax) query.fail("wait", "must be a duration such as 30s, at most 10m");
    wait = given.value_or(Duration{});
  }
  if (query.problem()) return call->fail(*query.problem());
  if (wait.ns == 0)
    return backend_.get_job(call->caller(), *job, tenant, answer_with<JobView>(call, job_json));
  wait_for_job(backend_, *server_, call, *job, tenant, wait, job_json);
}

void JobsRest::cancel_job(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  const auto job = parse_job_id(path[3]);
  if (!job) return call->fail(no_such_job(path[3]));
  RestQuery query(request.query);
  const std::string tenant = query.text("tenant_id").value_or("");
  if (query.problem()) return call->fail(*query.problem());
  backend_.cancel(call->caller(), *job, tenant, requester_of(request), [call](Answer<Unit> answer) {
    if (!answer) return call->fail(answer.error());
    call->send_at_flush(200, R"({"message":"Job cancelled successfully"})");
  });
}

void JobsRest::explain_job(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  const auto job = parse_job_id(path[3]);
  if (!job) return call->fail(no_such_job(path[3]));
  RestQuery query(request.query);
  const std::string tenant = query.text("tenant_id").value_or("");
  if (query.problem()) return call->fail(*query.problem());
  backend_.explain_job(call->caller(), *job, tenant, answer_with<ExplainView>(call, explain_json));
}

void JobsRest::read_log(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  const auto job = parse_job_id(path[3]);
  if (!job) return call->fail(no_such_job(path[3]));
  RestQuery query(request.query);
  LogQuery wanted = read_log_query(*job, query);
  if (query.problem()) return call->fail(*query.problem());
  relay_log(backend_, *server_, call, std::move(wanted.request), wanted.follow, wanted.format);
}

void JobsRest::create_tenant(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  Answer<TenantRequest> parsed = parse_tenant(request.body, true);
  if (!parsed) return call->fail(parsed.error());
  // Clients of this door run their set-up again; whoever wants a name of its own says so.
  RestQuery query(request.query);
  parsed->name_may_repeat = !query.flag("unique_name");
  if (query.problem()) return call->fail(*query.problem());
  if (!request.idempotency_key.empty()) {
    if (auto problem = check_request_key(request.idempotency_key, "Idempotency-Key"))
      return call->fail(*problem);
    parsed->request_key = request.idempotency_key;
  }
  parsed->by = requester_of(request);
  backend_.create_tenant(call->caller(), std::move(*parsed), answer_with<TenantView>(call, tenant_json, 201));
}

void JobsRest::list_tenants(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  backend_.list_tenants(call->caller(), answer_with<std::vector<TenantView>>(call, tenants_json));
}

void JobsRest::get_tenant(const HttpRequest&, const Segments& path, const RestCallPtr& call) {
  backend_.get_tenant(call->caller(), path[3], answer_with<TenantView>(call, tenant_json));
}

void JobsRest::update_tenant(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  Answer<TenantRequest> parsed = parse_tenant(request.body, false);
  if (!parsed) return call->fail(parsed.error());
  parsed->by = requester_of(request);
  backend_.update_tenant(call->caller(), path[3], std::move(*parsed),
                         answer_with<TenantView>(call, tenant_json));
}

void JobsRest::delete_tenant(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  backend_.delete_tenant(call->caller(), path[3], requester_of(request), [call](Answer<Unit> answer) {
    if (!answer) return call->fail(answer.error());
    call->send(200, R"({"message":"Tenant deleted successfully"})");
  });
}

void JobsRest::cluster(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  backend_.get_cluster(call->caller(), answer_with<ClusterView>(call, cluster_json));
}

void JobsRest::nodes(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  backend_.list_nodes(call->caller(), answer_with<std::vector<NodeView>>(call, nodes_json));
}

void JobsRest::confirm_dead(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  backend_.confirm_dead(call->caller(), path[3], requester_of(request),
                        answer_with<NodeView>(call, node_json));
}

void JobsRest::set_condition(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  const auto index = parse_count(path[5], limits::kDevicesPerNodeMax - 1);
  if (!index) {
    return call->fail({ErrorKind::kDeviceNotFound,
                       "no such device; the index is a number such as 0, as in "
                       "<node>-gpu-0"});
  }
  const Answer<ConditionRequest> parsed = parse_condition(request.body, requester_of(request));
  if (!parsed) return call->fail(parsed.error());
  call->note().claim(parsed->by);
  backend_.set_condition(call->caller(), path[3], static_cast<uint32_t>(*index), parsed->condition,
                         parsed->detail, parsed->by, answer_with<NodeView>(call, node_json));
}

}  // namespace gpusched::api
