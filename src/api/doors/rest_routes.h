#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "access/actions.h"
#include "api/doors/rest_query.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// A call of a REST door, as a row of its table.
template <typename Door>
struct RestRoute {
  HttpMethod method;
  std::string_view pattern;  ///< Segments; "*" takes any one.
  access::Action action;     ///< Action that the call is checked and audited as.
  void (Door::*route)(const HttpRequest&, const std::vector<std::string>&, const RestCallPtr&);
};

/// The row for the method and the path; null: there is none. `allowed` gets the methods of the path then.
template <typename Door>
const RestRoute<Door>* find_route(std::span<const RestRoute<Door>> routes, HttpMethod method,
                                  const std::vector<std::string>& segments, std::string& allowed) {
  const HttpMethod wanted = method == HttpMethod::kHead ? HttpMethod::kGet : method;
  for (const RestRoute<Door>& row : routes) {
    if (!path_matches(row.pattern, segments)) continue;
    if (row.method == wanted) return &row;
    if (!allowed.empty()) allowed += ", ";
    allowed += to_string(row.method);
    if (row.method == HttpMethod::kGet) allowed += ", HEAD";
  }
  return nullptr;
}

/// Has the door answer the request by its row, or answers that there is none.
template <typename Door>
void serve_route(Door& door, std::span<const RestRoute<Door>> routes, const HttpRequest& request,
                 const RestCallPtr& call) {
  const auto segments = path_segments(request.path.starts_with('/') ? request.path : std::string_view("/*"));
  if (!segments) {
    return call->fail(
        {ErrorKind::kInvalidArgument, "the path has an invalid percent escape; encode it correctly"});
  }
  std::string allowed;
  if (const RestRoute<Door>* const row = find_route<Door>(routes, request.method, *segments, allowed)) {
    call->note().name(row->action, resource_of(*segments));
    return (door.*row->route)(request, *segments, call);
  }
  if (allowed.empty()) {
    return call->fail({ErrorKind::kNotFound,
                       "no such path; the paths of the API begin with /api/v1 and are listed in "
                       "docs/reference/rest.md"});
  }
  refuse_method(request.method, allowed, call);
}

/// Says in the note what a request is about that nobody is to answer.
template <typename Door>
void name_by_route(std::span<const RestRoute<Door>> routes, const HttpRequest& request, CallNote& note) {
  const auto segments = path_segments(request.path);
  if (!segments) return;
  std::string allowed;
  const RestRoute<Door>* const row = find_route<Door>(routes, request.method, *segments, allowed);
  if (row != nullptr) note.name(row->action, resource_of(*segments));
}

}  // namespace gpusched::api
