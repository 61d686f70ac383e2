#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/contract/backend.h"
#include "api/doors/rest_routes.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// The tasks door over REST: online and batch tasks under /api/v1/tasks, the GPUs, and the quota that divides
/// them. A task is a job like any other. See docs/reference/tasks.md. Requests come on the server's thread;
/// nothing blocks it.
class TasksRest {
 public:
  explicit TasksRest(Backend& backend) : backend_(backend) {}

  /// Whether a path is this door's.
  static bool takes(std::string_view path);
  void handle(HttpRequest&& request, const RestCallPtr& call);
  /// Says in the note what a request is about that nobody is to answer.
  static void name_call(const HttpRequest& request, CallNote& note);

  using RouteRow = RestRoute<TasksRest>;
  static std::span<const RouteRow> routes();

 private:
  using Segments = std::vector<std::string>;

  void submit(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void list(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void get(const HttpRequest&, const Segments& path, const RestCallPtr& call);
  void answer_cancelled(const RestCallPtr& call, JobId id);
  void cancel(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void list_gpus(const HttpRequest&, const Segments&, const RestCallPtr& call);
  void get_quota(const HttpRequest&, const Segments&, const RestCallPtr& call);
  void set_quota(const HttpRequest& request, const Segments&, const RestCallPtr& call);

  Backend& backend_;
};

}  // namespace gpusched::api
