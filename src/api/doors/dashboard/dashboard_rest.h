#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/backend.h"
#include "api/doors/rest_routes.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

struct DashboardOptions {
  std::string version;
  /// Whether people sign in with a browser, now. Null: they do not.
  std::function<bool()> has_sign_in = nullptr;
};

/// The dashboard: a page at /, its files, and the reads of it that no other door has. All that it changes
/// goes through the native API. Requests come on the server's thread; nothing blocks it. See
/// docs/dashboard.md.
class DashboardRest {
 public:
  DashboardRest(Backend& backend, DashboardOptions options)
      : backend_(backend), options_(std::move(options)) {}

  /// Whether a path is this door's.
  static bool takes(std::string_view path) { return path == "/" || path.starts_with("/ui/"); }
  /// Whether everybody is answered: with the program's own files, which are no secret.
  static bool is_public(const HttpRequest& request) { return request.path.starts_with("/ui/assets/"); }
  void handle(HttpRequest&& request, const RestCallPtr& call);
  /// Answers the page itself where the gate refuses it: without data, and with the reason, so that somebody
  /// can sign in there. False: the request is about something else.
  bool refuse(const HttpRequest& request, const RestCallPtr& call, const ApiError& error) const;
  /// Says in the note what a request is about that nobody is to answer.
  static void name_call(const HttpRequest& request, CallNote& note);

  using RouteRow = RestRoute<DashboardRest>;
  static std::span<const RouteRow> routes();

 private:
  using Segments = std::vector<std::string>;
  void page(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void snapshot(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void nodes(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void line(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void asset(const HttpRequest& request, const Segments&, const RestCallPtr& call);

  Backend& backend_;
  const DashboardOptions options_;
};

}  // namespace gpusched::api
