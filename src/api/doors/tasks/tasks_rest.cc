#include "api/doors/tasks/tasks_rest.h"

#include <algorithm>
#include <deque>
#include <memory>

#include "api/calls/trace_jobs.h"
#include "api/contract/names.h"
#include "api/contract/parse.h"
#include "api/contract/token.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/doors/pages.h"
#include "api/doors/rest_query.h"
#include "api/doors/tasks/tasks_json.h"
#include "host/core/system_clock.h"

namespace gpusched::api {
namespace {

constexpr int64_t kCountedAtOnce = 10'000;  // For a list that looks into tasks.

/// One list of tasks in the making: a status may stand for several states, and a list that looks into tasks
/// comes in pages, of which all are counted.
class TaskList : public std::enable_shared_from_this<TaskList> {
 public:
  TaskList(Backend& backend, RestCallPtr call, std::deque<JobFilter> filters, int64_t limit)
      : backend_(backend), call_(std::move(call)), filters_(std::move(filters)), limit_(limit) {}

  void next() {
    if (filters_.empty()) return answer();
    backend_.list_jobs(call_->caller(), filters_.front(),
                       [self = shared_from_this()](Answer<JobPage> page) { self->take(std::move(page)); });
  }

 private:
  void take(Answer<JobPage> page) {
    if (!page) return call_->fail(page.error());
    total_ += page->total.value_or(static_cast<int64_t>(page->jobs.size()));
    for (JobView& job : page->jobs) {
      if (taken_ >= limit_) break;
      jobs_.push_back(std::move(job));
      taken_ += 1;
    }
    if (!page->total && page->next.valid()) {
      JobFilter& filter = filters_.front();
      filter.before = page->next;
      if (taken_ >= limit_) {  // The rest is only counted.
        filter.limit = kCountedAtOnce;
        filter.details = {.name = false, .message = false, .place = false, .gpus = false};
      }
    } else {
      filters_.pop_front();
      taken_ = 0;
      newest_first();
    }
    next();
  }
  void newest_first() {
    std::sort(jobs_.begin(), jobs_.end(), [](const JobView& a, const JobView& b) { return b.id < a.id; });
    if (static_cast<int64_t>(jobs_.size()) > limit_) jobs_.erase(jobs_.begin() + limit_, jobs_.end());
  }
  void answer() { call_->send(200, tasks_json(jobs_, total_)); }

  Backend& backend_;
  const RestCallPtr call_;
  std::deque<JobFilter> filters_;
  const int64_t limit_;
  std::vector<JobView> jobs_;
  int64_t taken_ = 0;  ///< Jobs taken by the present filter.
  int64_t total_ = 0;
};

}  // namespace

std::span<const TasksRest::RouteRow> TasksRest::routes() {
  using enum HttpMethod;
  using enum access::Action;
  static const RouteRow kRoutes[] = {
      {kPost, "api/v1/tasks", kSubmitJob, &TasksRest::submit},
      {kGet, "api/v1/tasks", kSeeJob, &TasksRest::list},
      {kGet, "api/v1/tasks/*", kSeeJob, &TasksRest::get},
      {kDelete, "api/v1/tasks/*", kCancelJob, &TasksRest::cancel},
      {kGet, "api/v1/gpus", kSeeNode, &TasksRest::list_gpus},
      {kGet, "api/v1/quota", kSeeCluster, &TasksRest::get_quota},
      {kPut, "api/v1/quota", kSetPools, &TasksRest::set_quota},
  };
  return kRoutes;
}

bool TasksRest::takes(std::string_view path) {
  constexpr std::string_view kPrefix = "/api/v1/";
  if (!path.starts_with(kPrefix)) return false;
  path.remove_prefix(kPrefix.size());
  const std::string_view first = path.substr(0, path.find('/'));
  return first == "tasks" || first == "gpus" || first == "quota";
}

void TasksRest::handle(HttpRequest&& request, const RestCallPtr& call) {
  serve_route(*this, routes(), request, call);
}

void TasksRest::name_call(const HttpRequest& request, CallNote& note) {
  name_by_route(routes(), request, note);
}

void TasksRest::submit(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  Answer<SubmitRequest> parsed = parse_task(request.body, backend_.containers_possible());
  if (!parsed) return call->fail(parsed.error());
  if (!request.idempotency_key.empty()) {
    if (auto problem = check_request_key(request.idempotency_key, "Idempotency-Key"))
      return call->fail(*problem);
    parsed->request_key = request.idempotency_key;
  }
  parsed->by = shown_requester(request.requested_by, request.peer);
  call->note().name_user(*parsed);
  trace_jobs(*parsed, request.traceparent, call->note());
  backend_.submit(call->caller(), std::move(*parsed), [this, call](Answer<Submitted> answer) {
    if (!answer) return call->fail(answer.error());
    call->note().name_jobs(*answer);
    backend_.get_job(call->caller(), answer->first_job, {}, [call](Answer<JobView> job) {
      if (!job) return call->fail(job.error());
      call->send(201, submitted_task_json(*job));
    });
  });
}

void TasksRest::list(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  RestQuery query(request.query);
  JobFilter filter{.tenant = query.text("tenant_id").value_or("")};
  if (const auto priority = query.text("priority")) {
    filter.online = *priority == "high";
    if (*priority != "high" && *priority != "low") query.fail("priority", "must be high or low");
  }
  const int64_t limit = std::min(query.count("limit", kPageDefault, INT64_MAX), kPageMax);
  filter.limit = filter.looks_inside() ? std::max<int64_t>(limit, 1) : limit;
  std::deque<JobFilter> filters;
  if (const auto status = query.text("status")) {
    for (const JobState state : states_of_status(*status)) {
      filters.push_back(filter);
      filters.back().state = state;
    }
    if (filters.empty()) query.fail("status", "must be pending, running, success, failed or cancelled");
  } else {
    filters.push_back(filter);
  }
  if (query.problem()) return call->fail(*query.problem());
  std::make_shared<TaskList>(backend_, call, std::move(filters), limit)->next();
}

void TasksRest::get(const HttpRequest&, const Segments& path, const RestCallPtr& call) {
  const auto job = parse_job_id(path[3]);
  if (!job) return call->fail(no_such_job(path[3]));
  backend_.get_job(call->caller(), *job, {}, [call](Answer<JobView> answer) {
    if (!answer) return call->fail(answer.error());
    call->send(200, task_json(*answer));
  });
}

void TasksRest::cancel(const HttpRequest& request, const Segments& path, const RestCallPtr& call) {
  const auto job = parse_job_id(path[3]);
  if (!job) return call->fail(no_such_job(path[3]));
  backend_.cancel(call->caller(), *job, {}, shown_requester(request.requested_by, request.peer),
                  [this, call, id = *job](Answer<Unit> answer) {
                    if (!answer) return call->fail(answer.error());
                    answer_cancelled(call, id);
                  });
}

// Cancelled it is, whether or not anybody can say where it stands.
void TasksRest::answer_cancelled(const RestCallPtr& call, JobId id) {
  const auto done = [call] { call->send(200, R"({"message":"Task cancelled"})"); };
  backend_.get_job(call->caller(), id, {}, [this, call, done](Answer<JobView> job) {
    if (!job || is_final(job->state) || job->node_name.empty()) return done();
    backend_.list_nodes(call->caller(), [call, done, name = std::move(job->node_name)](
                                            const Answer<std::vector<NodeView>>& nodes) {
      const auto is_silent = [&name](const NodeView& node) {
        return node.name == name && node.contact != NodeState::kReady;
      };
      if (!nodes || std::ranges::none_of(*nodes, is_silent)) return done();
      call->send(202, R"({"message":"Task will be stopped when its node returns"})");
    });
  });
}

void TasksRest::list_gpus(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  backend_.list_nodes(call->caller(), [call](Answer<std::vector<NodeView>> nodes) {
    if (!nodes) return call->fail(nodes.error());
    call->send(200, gpus_json(*nodes, wall_now()));
  });
}

void TasksRest::get_quota(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  backend_.get_pools(call->caller(), [call](Answer<PoolsView> pools) {
    if (!pools) return call->fail(pools.error());
    call->send(200, quota_json(*pools));
  });
}

void TasksRest::set_quota(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  const Answer<int64_t> online = parse_quota(request.body);
  if (!online) return call->fail(online.error());
  backend_.set_pools(call->caller(), *online, shown_requester(request.requested_by, request.peer),
                     [call](Answer<PoolsView> pools) {
                       if (!pools) return call->fail(pools.error());
                       call->send(200, R"({"message":"Quota updated"})");
                     });
}

}  // namespace gpusched::api
