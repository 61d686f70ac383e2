#include "api/doors/agent_tasks/agent_tasks_rest.h"

#include <memory>
#include <utility>

#include "api/doors/agent_tasks/agent_tasks_json.h"
#include "api/doors/agent_tasks/task_rights.h"
#include "api/doors/pages.h"
#include "host/core/system_clock.h"

namespace gpusched::api {
namespace {

using access::Action;

/// Jobs with their names, which are the ids of tasks, where the caller may know them.
JobFilter in_state(std::optional<JobState> state) {
  JobFilter filter{.state = state, .limit = kPageMax};
  filter.details = {.message = false, .place = false, .gpus = false};
  return filter;
}

}  // namespace

std::span<const AgentTasksRest::RouteRow> AgentTasksRest::own_routes() {
  using enum HttpMethod;
  static const RouteRow kRoutes[] = {
      {kGet, "gpu/metrics", Action::kSeeNode, &AgentTasksRest::gpu_metrics},
      {kGet, "queue/status", Action::kSeeJob, &AgentTasksRest::queue_status},
      {kGet, "metrics", Action::kSeeJob, &AgentTasksRest::metrics},
  };
  return kRoutes;
}

std::span<const AgentTasksRest::RouteRow> AgentTasksRest::routes() { return own_routes().first(2); }

bool AgentTasksRest::takes(std::string_view path) {
  const std::string_view first = path.substr(0, path.find('/', 1));
  return first == "/gpu" || first == "/queue";
}

bool AgentTasksRest::is_health(const HttpRequest& request) { return request.path == "/health"; }

void AgentTasksRest::handle(HttpRequest&& request, const RestCallPtr& call) {
  serve_route(*this, routes(), request, call);
}

void AgentTasksRest::handle_own(HttpRequest&& request, const RestCallPtr& call) {
  name_own_call(request, call->note());
  if (is_health(request)) return call->send(200, health_json(wall_now()));
  serve_route(*this, own_routes(), request, call);
}

void AgentTasksRest::name_call(const HttpRequest& request, CallNote& note) {
  name_by_route(routes(), request, note);
}

void AgentTasksRest::name_own_call(const HttpRequest& request, CallNote& note) {
  if (is_health(request)) return note.name(Action::kSeeHealth, {});
  name_by_route(own_routes(), request, note);
}

void AgentTasksRest::gpu_metrics(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  backend_.list_nodes(call->caller(), [call](const Answer<std::vector<NodeView>>& nodes) {
    if (!nodes) return call->fail(nodes.error());
    call->send(200, gpu_metrics_json(*nodes));
  });
}

void AgentTasksRest::queue_status(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  const CallerPtr& caller = call->caller();
  // As of any list of jobs: who may see none is told of none.
  if (!may_with_tasks(*caller, Action::kSeeJob)) return call->send(200, queue_json({}, {}, {}));
  const TenantId tenant = access::home_tenant(*caller);
  const TaskIndex::Counts counts = index_.counts(tenant);
  // The walls between owners are looked after by the list of jobs.
  backend_.get_jobs(
      caller, index_.tasks(tenant, TaskState::kPending, kPageMax), in_state(std::nullopt),
      [this, call, tenant, counts](Answer<JobPage> pending) {
        if (!pending) return call->fail(pending.error());
        std::erase_if(pending->jobs,
                      [](const JobView& job) { return task_state_of(job.state) != TaskState::kPending; });
        backend_.get_jobs(call->caller(), index_.tasks(tenant, TaskState::kRunning, kPageMax),
                          in_state(JobState::kRunning),
                          [call, counts, waiting = std::move(pending->jobs)](const Answer<JobPage>& running) {
                            if (!running) return call->fail(running.error());
                            call->send(200, queue_json(counts, waiting, running->jobs));
                          });
      });
}

void AgentTasksRest::metrics(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  const CallerPtr& caller = call->caller();
  TaskIndex::Counts counts;
  if (may_with_tasks(*caller, Action::kSeeJob)) counts = index_.counts(access::home_tenant(*caller));
  backend_.list_nodes(caller, [call, counts](const Answer<std::vector<NodeView>>& nodes) {
    if (!nodes) return call->fail(nodes.error());
    call->send(200, task_metrics_json(counts, gpu_metrics_json(*nodes), wall_now()));
  });
}

}  // namespace gpusched::api
