#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/backend.h"
#include "api/doors/jobs/estimate_pace.h"
#include "api/doors/rest_routes.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// The jobs door over REST: everything under /api/v1, and /health. See docs/reference/rest.md. Requests come
/// on the server's thread; nothing blocks it.
class JobsRest {
 public:
  /// `server` is where timers run; set before the first request by `attach`. `token_file`: where the shared
  /// token is, which callers on this machine are told.
  JobsRest(Backend& backend, std::string version, std::string token_file = {})
      : backend_(backend), version_(std::move(version)), token_file_(std::move(token_file)) {}
  void attach(HttpServer& server) { server_ = &server; }

  void handle(HttpRequest&& request, const RestCallPtr& call);
  /// Says in the note what a request is about that nobody is to answer.
  static void name_call(const HttpRequest& request, CallNote& note);

  using RouteRow = RestRoute<JobsRest>;
  static std::span<const RouteRow> routes();

 private:
  using Segments = std::vector<std::string>;

  void health(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void submit(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void plan(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void list_jobs(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void get_job(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void cancel_job(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void explain_job(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void read_log(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void create_tenant(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void list_tenants(const HttpRequest&, const Segments&, const RestCallPtr& call);
  void get_tenant(const HttpRequest&, const Segments& path, const RestCallPtr& call);
  void update_tenant(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void delete_tenant(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void cluster(const HttpRequest&, const Segments&, const RestCallPtr& call);
  void nodes(const HttpRequest&, const Segments&, const RestCallPtr& call);
  void confirm_dead(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void set_condition(const HttpRequest& request, const Segments& path, const RestCallPtr& call);
  void watch(const HttpRequest& request, const Segments&, const RestCallPtr& call);

  Backend& backend_;
  HttpServer* server_ = nullptr;
  std::string version_;
  std::string token_file_;
  EstimatePace pace_;
};

}  // namespace gpusched::api
