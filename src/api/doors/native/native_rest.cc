#include "api/doors/native/native_rest.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "api/calls/trace_jobs.h"
#include "api/contract/caller.h"
#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/doors/docs/docs_page.h"
#include "api/doors/jobs/job_wait.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/doors/native/native_moves.h"
#include "api/doors/native/native_rest_bodies.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/native/native_rest_openapi.h"
#include "api/doors/native/native_rest_stream.h"
#include "api/doors/native/native_rest_views.h"
#include "api/doors/native/native_rest_watch.h"
#include "api/doors/native/native_views.h"
#include "api/doors/pages.h"
#include "api/doors/session/log_relay.h"
#include "api/fields/flow_fields.h"
#include "base/limits.h"
#include "gpusched/v1/edits.pb.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

constexpr int64_t kJobPageMax = 10'000;
constexpr int64_t kTenantPageMax = 1'000;

Done<JobView> answer_with_job(const NativeCall& call, JobMask mask = {}) {
  return [reply = call.call, mask](Answer<JobView> answer) {
    if (!answer) return reply->fail(answer.error());
    reply->send(200, native_job_json(*answer, mask));
  };
}

/// The job of the path, or nothing after an answer.
std::optional<JobId> path_job(const NativeCall& call) {
  const auto job = parse_job_id(call.path[2]);
  if (!job) call.call->fail(no_such_job(call.path[2]));
  return job;
}

/// The filter of lists and watches. Leaves problems in the query.
JobFilter read_filter(RestQuery& query) {
  JobFilter filter{.tenant = query.text("tenant_id").value_or("")};
  if (const auto state = query.text("state")) {
    filter.state = parse_job_state(*state);
    if (!filter.state) {
      query.fail("state", "must be pending, scheduled, running, completed, failed, cancelled or preempted");
    }
  }
  filter.name = query.text("name").value_or("");
  filter.user = query.text("user").value_or("");
  for (const std::string& text : query.texts("label")) filter.labels.push_back(parse_label(text));
  if (filter.labels.size() > limits::kLabelTermsMax)
    query.fail("label", "may be given " + std::to_string(limits::kLabelTermsMax) + " times at most");
  if (const auto since = query.text("since")) {
    const auto time = parse_since(*since);
    if (!time)
      query.fail("since", "must be a time such as 2025-01-31T09:00:00Z, or how long ago, such as 2h");
    filter.since = time.value_or(Time{});
  }
  return filter;
}

JobMask read_mask(RestQuery& query) {
  Answer<JobMask> mask = parse_job_mask(query.text("fields").value_or(""));
  if (mask) return *mask;
  query.fail(mask.error());
  return {};
}

}  // namespace

void NativeRest::handle(HttpRequest&& request, const RestCallPtr& call) {
  const auto segments = path_segments(request.path);
  if (!segments) {
    return call->fail(
        {ErrorKind::kInvalidArgument, "the path has an invalid percent escape; encode it correctly"});
  }
  std::string allowed;
  if (const NativeRoute* const route = find_route(request.method, *segments, allowed)) {
    call->note().line.door = audit::Door::kNativeRest;
    call->note().name(route->action, resource_of(*segments));
    NativeCall native{request, *route, *segments, RestQuery(request.query), call};
    std::vector<std::string_view> names;
    for (const NativeParameter& parameter : route->query) names.push_back(parameter.name);
    native.query.only(names);
    if (!native.refused()) (this->*route->handle)(native);
    return;
  }
  if (allowed.empty()) {
    return call->fail(
        {ErrorKind::kNotFound, "no such path; GET /v1/openapi.json lists the calls of the native API"});
  }
  refuse_method(request.method, allowed, call);
}

const NativeRoute* NativeRest::find_route(HttpMethod method, const std::vector<std::string>& segments,
                                          std::string& allowed) {
  const HttpMethod wanted = method == HttpMethod::kHead ? HttpMethod::kGet : method;
  for (const NativeRoute& route : routes()) {
    if (!path_matches(route.path, segments)) continue;
    if (route.method == wanted) return &route;
    if (!allowed.empty()) allowed += ", ";
    allowed += to_string(route.method);
    if (route.method == HttpMethod::kGet) allowed += ", HEAD";
  }
  return nullptr;
}

void NativeRest::name_call(const HttpRequest& request, CallNote& note) {
  const auto segments = path_segments(request.path);
  if (!segments) return;
  std::string allowed;
  note.line.door = audit::Door::kNativeRest;
  const NativeRoute* const route = find_route(request.method, *segments, allowed);
  if (route != nullptr) note.name(route->action, resource_of(*segments));
}

void NativeRest::submit(NativeCall& call) {
  Answer<SubmitRequest> parsed =
      read_native_submit(call.request.body, call.request.idempotency_key, backend_.containers_possible());
  if (!parsed) return call.call->fail(parsed.error());
  parsed->by = requester_of(call);
  call.call->note().name_user(*parsed);
  trace_jobs(*parsed, call.request.traceparent, call.call->note());
  backend_.submit(call.call->caller(), std::move(*parsed), [reply = call.call](Answer<Submitted> answer) {
    if (!answer) return reply->fail(answer.error());
    reply->note().name_jobs(*answer);
    reply->send_at_flush(201, native_submitted_json(*answer));
  });
}

void NativeRest::plan(NativeCall& call) {
  Answer<SubmitRequest> parsed =
      read_native_submit(call.request.body, call.request.idempotency_key, backend_.containers_possible());
  if (!parsed) return call.call->fail(parsed.error());
  backend_.plan(call.call->caller(), std::move(*parsed), answer_with<PlanView>(call, write_plan));
}

void NativeRest::submit_stream(NativeCall& call) {
  submit_lines(backend_, *server_, call.call, requester_of(call), call.request.traceparent);
}

void NativeRest::list_jobs(NativeCall& call) {
  JobFilter filter = read_filter(call.query);
  const JobMask mask = read_mask(call.query);
  filter.details = mask.details();
  filter.limit = std::min(call.query.count("page_size", kPageDefault, INT64_MAX), kJobPageMax);
  if (filter.limit == 0) filter.limit = kPageDefault;
  if (const auto token = call.query.text("page_token")) {
    const auto before = parse_job_id(*token);
    if (!before) call.query.fail("page_token", "is none that was given out");
    filter.before = before.value_or(JobId{});
  }
  if (call.refused()) return;
  backend_.list_jobs(call.call->caller(), std::move(filter), [reply = call.call, mask](Answer<JobPage> page) {
    if (!page) return reply->fail(page.error());
    reply->send(200, native_job_page_json(*page, mask));
  });
}

void NativeRest::get_job(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  const std::string tenant = call.query.text("tenant_id").value_or("");
  const JobMask mask = read_mask(call.query);
  Duration wait;
  if (const auto text = call.query.text("wait")) {
    const auto given = parse_duration(*text);
    if (!given || *given > kWaitMax) call.query.fail("wait", "must be a duration such as 30s, at most 10m");
    wait = given.value_or(Duration{});
  }
  if (call.refused()) return;
  if (wait.ns == 0) return backend_.get_job(call.call->caller(), *job, tenant, answer_with_job(call, mask));
  wait_for_job(backend_, *server_, call.call, *job, tenant, wait,
               [mask](const JobView& view) { return native_job_json(view, mask); });
}

void NativeRest::cancel_job(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  const std::string tenant = call.query.text("tenant_id").value_or("");
  backend_.cancel(call.call->caller(), *job, tenant, requester_of(call),
                  [this, caller = call.call->caller(), job = *job, tenant,
                   done = answer_with_job(call)](Answer<Unit> answer) {
                    if (!answer) return done(answer.error());
                    backend_.get_job(caller, job, tenant, done);
                  });
}

namespace {

/// The answers of several cancels, in their order.
struct RestCancelBatch {
  RestCallPtr reply;
  v1::CancelJobsResponse response;
  std::atomic<int> left;
  BatchNote note;
  void done() {
    if (left.fetch_sub(1) != 1) return;
    note.tell([this](std::size_t i) { return response.results(static_cast<int>(i)).job_id(); });
    reply->send(200, native_json(response));
  }
};

}  // namespace

void NativeRest::cancel_jobs(NativeCall& call) {
  v1::CancelJobsRequest request;
  google::protobuf::Message* const roots[] = {&request};
  NativeBody body;
  if (!read_body(call, roots, body)) return;
  if (request.job_ids_size() > static_cast<int>(limits::kBatchJobsMax)) {
    return call.call->fail(
        {ErrorKind::kInvalidArgument, "job_ids has more than 1000 entries; send several batches", "job_ids"});
  }
  const std::string by = requester_of(call);
  const auto count = static_cast<std::size_t>(request.job_ids_size());
  const auto batch =
      std::make_shared<RestCancelBatch>(call.call, v1::CancelJobsResponse(), request.job_ids_size() + 1,
                                        BatchNote(std::move(call.call->note()), count));
  for (const std::string& id : request.job_ids()) batch->response.add_results()->set_job_id(id);
  for (int i = 0; i < request.job_ids_size(); ++i) {
    v1::CancelJobsResponse::Result* const result = batch->response.mutable_results(i);
    const auto note = [result, noted = &batch->note, i](const ApiError& error) {
      noted->refused(static_cast<std::size_t>(i), error);
      result->set_code(std::string(row_of(error.kind).code));
      result->set_message(error.message);
    };
    const auto job = parse_job_id(request.job_ids(i));
    if (!job) {
      note(no_such_job(request.job_ids(i)));
      batch->done();
      continue;
    }
    backend_.cancel(call.call->caller(), *job, request.tenant_id(), by, [batch, note](Answer<Unit> answer) {
      if (!answer) note(answer.error());
      batch->done();
    });
  }
  batch->done();
}

void NativeRest::update_job(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  Answer<JobUpdate> update = read_native_update(call.request.body, call.path[2]);
  if (!update) return call.call->fail(update.error());
  update->by = requester_of(call);
  backend_.update_job(call.call->caller(), *job, call.query.text("tenant_id").value_or(""),
                      std::move(*update), answer_with_job(call));
}

void NativeRest::hold_job(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  backend_.hold_job(call.call->caller(), *job, call.query.text("tenant_id").value_or(""), true,
                    requester_of(call), answer_with_job(call));
}

void NativeRest::release_job(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  backend_.hold_job(call.call->caller(), *job, call.query.text("tenant_id").value_or(""), false,
                    requester_of(call), answer_with_job(call));
}

void NativeRest::requeue_job(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  backend_.requeue_job(call.call->caller(), *job, call.query.text("tenant_id").value_or(""),
                       requester_of(call), answer_with_job(call));
}

void NativeRest::rerun_job(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  RerunRequest request{.tenant = call.query.text("tenant_id").value_or(""),
                       .failed = call.query.flag("failed"),
                       .request_key = call.request.idempotency_key,
                       .by = requester_of(call)};
  if (const auto text = call.query.text("indexes")) {
    Answer<ArraySpec> given = parse_array(*text);
    if (!given) {
      ApiError error = given.error();
      error.field = "indexes";
      call.query.fail(std::move(error));
    } else if (request.failed) {
      call.query.fail(ApiError{ErrorKind::kUnprocessable,
                               "failed and indexes choose elements each; give one of them", "indexes"});
    } else {
      request.indexes = std::move(given->ranges);
      request.at_once = given->at_once;
    }
  }
  if (call.refused()) return;
  backend_.rerun_job(call.call->caller(), *job, std::move(request),
                     [reply = call.call](Answer<Submitted> answer) {
                       if (!answer) return reply->fail(answer.error());
                       reply->note().name_jobs(*answer);
                       reply->send_at_flush(201, native_submitted_json(*answer));
                     });
}

void NativeRest::get_history(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  backend_.get_history(call.call->caller(), *job, call.query.text("tenant_id").value_or(""),
                       answer_with<HistoryView>(call, write_history));
}

void NativeRest::explain_job(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  backend_.explain_job(call.call->caller(), *job, call.query.text("tenant_id").value_or(""),
                       answer_with<ExplainView>(call, write_explanation));
}

void NativeRest::read_log(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  LogQuery wanted = read_log_query(*job, call.query);
  if (call.refused()) return;
  relay_log(backend_, *server_, call.call, std::move(wanted.request), wanted.follow, wanted.format);
}

void NativeRest::watch_job(NativeCall& call) {
  const auto job = path_job(call);
  if (!job) return;
  const JobMask mask = read_mask(call.query);
  if (call.refused()) return;
  watch_one_job(backend_, *server_, call.call, *job, call.query.text("tenant_id").value_or(""), mask);
}

void NativeRest::watch(NativeCall& call) {
  const JobMask mask = read_mask(call.query);
  ChangesWanted wanted{.filter = read_filter(call.query), .nodes = call.query.flag("nodes")};
  wanted.filter.details = mask.details();
  wanted.since = read_resumption(call.request, call.query);
  if (call.refused()) return;
  watch_changes(backend_, *server_, call.call, std::move(wanted), mask);
}

// --- Tenants -----------------------------------------------------------------------------------------------

void NativeRest::create_tenant(NativeCall& call) {
  Answer<TenantRequest> parsed =
      read_native_tenant(call.request.body, call.request.idempotency_key, TenantUse::kCreate);
  if (!parsed) return call.call->fail(parsed.error());
  parsed->by = requester_of(call);
  backend_.create_tenant(call.call->caller(), std::move(*parsed),
                         answer_with<TenantView>(call, write_tenant));
}

void NativeRest::list_tenants(NativeCall& call) {
  const int64_t wanted = std::min(call.query.count("page_size", kPageDefault, INT64_MAX), kTenantPageMax);
  const auto size = static_cast<int>(wanted == 0 ? kPageDefault : wanted);
  const auto after = parse_count(call.query.text("page_token").value_or("0"), INT64_MAX);
  if (!after) call.query.fail("page_token", "is none that was given out");
  if (call.refused()) return;
  backend_.list_tenants(call.call->caller(),
                        [reply = call.call, size, after = *after](Answer<std::vector<TenantView>> answer) {
                          if (!answer) return reply->fail(answer.error());
                          v1::ListTenantsResponse response;
                          write_tenant_page(*answer, after, size, response);
                          reply->send(200, native_json(response));
                        });
}

void NativeRest::get_tenant(NativeCall& call) {
  backend_.get_tenant(call.call->caller(), call.path[2], answer_with<TenantView>(call, write_tenant));
}

void NativeRest::update_tenant(NativeCall& call) {
  Answer<TenantRequest> parsed = read_native_tenant(call.request.body, "", TenantUse::kUpdate);
  if (!parsed) return call.call->fail(parsed.error());
  parsed->by = requester_of(call);
  backend_.update_tenant(call.call->caller(), call.path[2], std::move(*parsed),
                         answer_with<TenantView>(call, write_tenant));
}

void NativeRest::delete_tenant(NativeCall& call) {
  backend_.delete_tenant(call.call->caller(), call.path[2], requester_of(call),
                         [reply = call.call](Answer<Unit> answer) {
                           if (!answer) return reply->fail(answer.error());
                           reply->send(200, "{}");
                         });
}

void NativeRest::edit_cluster(NativeCall& call) {
  Answer<EditsRequest> parsed = read_native_edits(call.request.body);
  if (!parsed) return call.call->fail(parsed.error());
  for (TenantRequest& tenant : parsed->tenants) tenant.by = requester_of(call);
  if (parsed->dry_run) call.call->note().line.action = access::Action::kSeeCluster;  // It changes nothing.
  backend_.edit_cluster(call.call->caller(), std::move(*parsed),
                        [reply = call.call](Answer<EditsView> answer) {
                          if (!answer) return reply->fail(answer.error());
                          v1::EditClusterResponse response;
                          response.set_dry_run(answer->dry_run);
                          response.set_tenants_created(answer->tenants_created);
                          response.set_tenants_updated(answer->tenants_updated);
                          response.set_nodes_labeled(answer->nodes_labeled);
                          reply->send(200, native_json(response));
                        });
}

// --- Nodes and the whole -----------------------------------------------------------------------------------

void NativeRest::list_nodes(NativeCall& call) {
  backend_.list_nodes(call.call->caller(), [reply = call.call](Answer<std::vector<NodeView>> answer) {
    if (!answer) return reply->fail(answer.error());
    v1::ListNodesResponse response;
    for (const NodeView& node : *answer) write_node(node, *response.add_nodes());
    reply->send(200, native_json(response));
  });
}

void NativeRest::get_node(NativeCall& call) {
  backend_.get_node(call.call->caller(), call.path[2], answer_with<NodeView>(call, write_node));
}

void NativeRest::drain_node(NativeCall& call) {
  const Answer<DrainWords> words = read_native_drain(call.request.body, call.path[2], requester_of(call));
  if (!words) return call.call->fail(words.error());
  call.call->note().claim(words->by);
  backend_.drain_node(call.call->caller(), call.path[2], words->by, words->reason,
                      answer_with<NodeView>(call, write_node));
}

void NativeRest::resume_node(NativeCall& call) {
  const Answer<DrainWords> words = read_native_drain(call.request.body, call.path[2], requester_of(call));
  if (!words) return call.call->fail(words.error());
  call.call->note().claim(words->by);
  backend_.resume_node(call.call->caller(), call.path[2], words->by, answer_with<NodeView>(call, write_node));
}

void NativeRest::reboot_node(NativeCall& call) {
  const Answer<DrainWords> words = read_native_drain(call.request.body, call.path[2], requester_of(call));
  if (!words) return call.call->fail(words.error());
  call.call->note().claim(words->by);
  backend_.reboot_node(call.call->caller(), call.path[2], words->reason,
                       answer_with<NodeView>(call, write_node));
}

void NativeRest::create_reservation(NativeCall& call) {
  Answer<ReservationRequest> request = read_native_reservation(call.request.body);
  if (!request) return call.call->fail(request.error());
  call.call->note().line.resource = request->name;
  backend_.make_reservation(call.call->caller(), std::move(*request),
                            answer_with<ReservationView>(call, write_reservation));
}

void NativeRest::list_reservations(NativeCall& call) {
  backend_.list_reservations(call.call->caller(),
                             [reply = call.call](Answer<std::vector<ReservationView>> answer) {
                               if (!answer) return reply->fail(answer.error());
                               v1::ListReservationsResponse response;
                               for (const ReservationView& one : *answer)
                                 write_reservation(one, *response.add_reservations());
                               reply->send(200, native_json(response));
                             });
}

void NativeRest::cancel_reservation(NativeCall& call) {
  backend_.cancel_reservation(call.call->caller(), call.path[2], [reply = call.call](Answer<Unit> answer) {
    if (!answer) return reply->fail(answer.error());
    reply->send(200, "{}");
  });
}

void NativeRest::label_node(NativeCall& call) {
  Answer<LabelChange> change = read_native_labels(call.request.body, call.path[2]);
  if (!change) return call.call->fail(change.error());
  backend_.label_node(call.call->caller(), call.path[2], std::move(change->set), std::move(change->remove),
                      answer_with<NodeView>(call, write_node));
}

void NativeRest::confirm_dead(NativeCall& call) {
  backend_.confirm_dead(call.call->caller(), call.path[2], requester_of(call),
                        answer_with<NodeView>(call, write_node));
}

void NativeRest::remove_node(NativeCall& call) {
  backend_.remove_node(call.call->caller(), call.path[2], requester_of(call),
                       [reply = call.call](Answer<Unit> answer) {
                         if (!answer) return reply->fail(answer.error());
                         reply->send(200, "{}");
                       });
}

void NativeRest::set_condition(NativeCall& call) {
  const auto index = parse_count(call.path[4], limits::kDevicesPerNodeMax - 1);
  if (!index) {
    return call.call->fail(
        {ErrorKind::kDeviceNotFound, "no such device; the index is a number such as 0, as in <node>-gpu-0"});
  }
  const Answer<ConditionRequest> parsed = read_native_condition(call.request.body, requester_of(call));
  if (!parsed) return call.call->fail(parsed.error());
  call.call->note().claim(parsed->by);
  backend_.set_condition(call.call->caller(), call.path[2], static_cast<uint32_t>(*index), parsed->condition,
                         parsed->detail, parsed->by, answer_with<NodeView>(call, write_node));
}

void NativeRest::get_quality(NativeCall& call) {
  const std::string tenant = call.query.text("tenant_id").value_or("");
  if (call.refused()) return;
  backend_.get_quality(call.call->caller(), tenant, answer_with<QualityView>(call, write_quality));
}

void NativeRest::get_moves(NativeCall& call) {
  MovesRequest request{.tenant = call.query.text("tenant_id").value_or("")};
  const std::string job = call.query.text("job_id").value_or("");
  request.moves_max = call.query.count("moves_max", 0, limits::kMovesMax);
  if (call.refused()) return;
  if (const auto problem = read_moves(job, request)) return call.call->fail(*problem);
  backend_.get_moves(call.call->caller(), std::move(request), answer_with<MovesView>(call, write_moves));
}

void NativeRest::apply_moves(NativeCall& call) {
  v1::ApplyMovesRequest message;
  google::protobuf::Message* const roots[] = {&message};
  NativeBody given;
  if (const auto problem = read_native_json(call.request.body, roots, given))
    return call.call->fail(*problem);
  if (message.by().empty()) message.set_by(requester_of(call));
  call.call->note().claim(message.by());
  call.call->note().line.resource = message.id();
  Answer<ApplyMoves> request = read_apply(message);
  if (!request) return call.call->fail(request.error());
  backend_.apply_moves(call.call->caller(), std::move(*request),
                       answer_with<MoveProposalView>(call, write_move_proposal));
}

void NativeRest::pause_starts(NativeCall& call) { set_pause(call, true); }
void NativeRest::resume_starts(NativeCall& call) { set_pause(call, false); }

void NativeRest::set_pause(NativeCall& call, bool paused) {
  v1::PauseStartsRequest request;
  google::protobuf::Message* const roots[] = {&request};
  NativeBody body;
  if (!call.request.body.empty() && !read_body(call, roots, body)) return;
  if (auto problem = check_pause(request)) return call.call->fail(*problem);
  const std::string by = request.by().empty() ? requester_of(call) : request.by();
  call.call->note().claim(by);
  backend_.pause_starts(call.call->caller(), paused, by, request.reason(),
                        answer_with<ClusterView>(call, write_cluster));
}

void NativeRest::get_cluster(NativeCall& call) {
  backend_.get_cluster(call.call->caller(),
                       [reply = call.call, version = version_](Answer<ClusterView> answer) {
                         if (!answer) return reply->fail(answer.error());
                         v1::Cluster cluster;
                         write_cluster(*answer, cluster);
                         cluster.set_version(version);
                         reply->send(200, native_json(cluster));
                       });
}

/// The same for everybody, and without the version, which is not for everybody.
void NativeRest::docs(NativeCall& call) {
  static const std::string kPage = docs_page(openapi_json(routes(), ""));
  static const std::size_t kRoom = kPage.find(kDocsBanner);
  std::string page = kPage;
  page.replace(kRoom, kDocsBanner.size(), banner_ == nullptr ? std::string() : banner_(call.request));
  HttpResponse response{.body = std::move(page), .content_type = "text/html; charset=utf-8"};
  response.headers.emplace_back("Cache-Control", "no-store");
  response.headers.emplace_back("Content-Security-Policy", std::string(kDocsPolicy));
  call.call->send(std::move(response));
}

void NativeRest::openapi(NativeCall& call) { call.call->send(200, openapi_json(routes(), version_)); }

}  // namespace gpusched::api
