#include "api/doors/dashboard/dashboard_rest.h"

#include <algorithm>
#include <array>
#include <utility>

#include "api/doors/dashboard/dashboard_assets.h"
#include "api/doors/dashboard/dashboard_page.h"
#include "api/doors/dashboard/dashboard_snapshot.h"

namespace gpusched::api {
namespace {

using enum access::Action;

/// Jobs on a page of the line.
constexpr int64_t kLinePageMax = 200;

DashboardFacts facts_of(const DashboardOptions& options) {
  return {.version = options.version, .has_sign_in = options.has_sign_in != nullptr && options.has_sign_in()};
}

/// Data of one caller, for the dashboard's script.
void send_data(const RestCallPtr& call, std::string json) {
  HttpResponse response{.body = std::move(json)};
  response.headers.emplace_back("Cache-Control", "no-store");
  add_dashboard_headers(response);
  call->send(std::move(response));
}

}  // namespace

std::span<const DashboardRest::RouteRow> DashboardRest::routes() {
  static constexpr RouteRow kRoutes[] = {
      {HttpMethod::kGet, "", kSeeCluster, &DashboardRest::page},
      {HttpMethod::kGet, "ui/snapshot", kSeeCluster, &DashboardRest::snapshot},
      {HttpMethod::kGet, "ui/nodes", kSeeNode, &DashboardRest::nodes},
      {HttpMethod::kGet, "ui/line", kSeeJob, &DashboardRest::line},
      {HttpMethod::kGet, "ui/assets/*", kSeeHealth, &DashboardRest::asset},
  };
  return kRoutes;
}

void DashboardRest::name_call(const HttpRequest& request, CallNote& note) {
  name_by_route(routes(), request, note);
}

void DashboardRest::handle(HttpRequest&& request, const RestCallPtr& call) {
  serve_route(*this, routes(), request, call);
}

bool DashboardRest::refuse(const HttpRequest& request, const RestCallPtr& call, const ApiError& error) const {
  const bool reads = request.method == HttpMethod::kGet || request.method == HttpMethod::kHead;
  if (request.path != "/" || !reads) return false;
  call->note().tell(&error);
  call->send(dashboard_page(row_of(error.kind).http_status, refused_snapshot(facts_of(options_), error)));
  return true;
}

void DashboardRest::page(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  make_snapshot(backend_, call->caller(), facts_of(options_),
                [call](const std::string& json) { call->send(dashboard_page(200, json)); });
}

void DashboardRest::snapshot(const HttpRequest&, const Segments&, const RestCallPtr& call) {
  make_snapshot(backend_, call->caller(), facts_of(options_),
                [call](std::string json) { send_data(call, std::move(json)); });
}

void DashboardRest::nodes(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  RestQuery query(request.query);
  static constexpr std::array<std::string_view, 1> kNames = {"name"};
  query.only(kNames);
  if (query.problem()) return call->fail(*query.problem());
  backend_.list_nodes(call->caller(),
                      [call, names = query.texts("name")](Answer<std::vector<NodeView>> answer) {
                        if (!answer) return call->fail(answer.error());
                        if (!names.empty()) {
                          std::erase_if(*answer, [&](const NodeView& node) {
                            return std::ranges::find(names, node.name) == names.end();
                          });
                        }
                        send_data(call, compact_nodes_json(*answer));
                      });
}

void DashboardRest::line(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  RestQuery query(request.query);
  static constexpr std::array<std::string_view, 5> kNames = {"offset", "limit", "tenant_id", "name", "user"};
  query.only(kNames);
  const JobFilter filter{.tenant = query.text("tenant_id").value_or(""),
                         .state = JobState::kPending,
                         .limit = query.count("limit", kSnapshotJobs, kLinePageMax),
                         .offset = query.count("offset", 0, INT64_MAX),
                         .name = query.text("name").value_or(""),
                         .user = query.text("user").value_or(""),
                         .in_line = true,
                         .details = listed_fields().details()};
  if (query.problem()) return call->fail(*query.problem());
  backend_.list_jobs(call->caller(), filter, [call](const Answer<JobPage>& answer) {
    if (!answer) return call->fail(answer.error());
    send_data(call, line_json(*answer));
  });
}

void DashboardRest::asset(const HttpRequest& request, const Segments&, const RestCallPtr& call) {
  const DashboardAsset* const found = find_dashboard_asset(request.path);
  if (found == nullptr)
    return call->fail({ErrorKind::kNotFound, "the dashboard has no such file; reload the page"});
  HttpResponse response{.body = std::string(found->bytes), .content_type = found->content_type};
  response.headers.emplace_back("Content-Encoding", "gzip");
  response.headers.emplace_back("Cache-Control", "public, max-age=31536000, immutable");
  add_dashboard_headers(response);
  call->send(std::move(response));
}

}  // namespace gpusched::api
