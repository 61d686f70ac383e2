#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/backend/tasks/task_index.h"
#include "api/contract/backend.h"
#include "api/doors/rest_routes.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// The HTTP side of the service algogpu.GPUScheduler: the GPUs, the queue, and counts of tasks, to be read
/// only. At the API's port /gpu/metrics and /queue/status; at a port of its own /health and /metrics as well,
/// which are others' at the API's. See docs/reference/agent-tasks.md. Requests come on the server's thread;
/// nothing blocks it.
class AgentTasksRest {
 public:
  AgentTasksRest(Backend& backend, TaskIndex& index) : backend_(backend), index_(index) {}

  /// Whether a path at the API's port is this door's.
  static bool takes(std::string_view path);
  /// Whether it asks for the health at the door's own port, which is told to everybody.
  static bool is_health(const HttpRequest& request);
  /// At the API's port.
  void handle(HttpRequest&& request, const RestCallPtr& call);
  /// At the door's own.
  void handle_own(HttpRequest&& request, const RestCallPtr& call);
  /// Say in the note what a request is about that nobody is to answer.
  static void name_call(const HttpRequest& request, CallNote& note);
  static void name_own_call(const HttpRequest& request, CallNote& note);

  using RouteRow = RestRoute<AgentTasksRest>;
  static std::span<const RouteRow> routes();
  static std::span<const RouteRow> own_routes();

 private:
  using Segments = std::vector<std::string>;

  void gpu_metrics(const HttpRequest&, const Segments&, const RestCallPtr& call);
  void queue_status(const HttpRequest&, const Segments&, const RestCallPtr& call);
  void metrics(const HttpRequest&, const Segments&, const RestCallPtr& call);

  Backend& backend_;
  TaskIndex& index_;
};

}  // namespace gpusched::api
