#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/backend/tokens/sign_in_flow.h"
#include "api/contract/backend.h"
#include "api/doors/rest_routes.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// Signing in and out with a browser, and the page of who did. See docs/operate/jwt.md. Requests come on the
/// server's thread; nothing blocks it.
class SignInRest {
 public:
  static constexpr int64_t kJobsShown = 20;

  /// `flow` null: nobody signs in. It must outlive the server's shutdown.
  SignInRest(Backend& backend, std::shared_ptr<SignInFlow> flow)
      : backend_(backend), flow_(std::move(flow)) {}

  /// Whether a path is this door's.
  static bool takes(std::string_view path) {
    return path == "/login" || path == "/login/callback" || path == "/logout" || path == "/me";
  }
  /// Whether everybody is answered, who has no credential yet above all.
  static bool is_public(const HttpRequest& request) {
    return request.path == "/login" || request.path == "/login/callback";
  }
  void handle(HttpRequest&& request, const RestCallPtr& call);
  /// Answers, as a page, what the gate refuses of a request of this door.
  bool refuse(const HttpRequest& request, const RestCallPtr& call, const ApiError& error) const;
  /// Says in the note what a request is about that nobody is to answer.
  static void name_call(const HttpRequest& request, CallNote& note);
  /// The text in the API's document on who looks at it; nothing where nobody signs in.
  std::string banner(const HttpRequest& request) const;

  using RouteRow = RestRoute<SignInRest>;
  static std::span<const RouteRow> routes();

 private:
  using Segments = std::vector<std::string>;
  void login(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void callback(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void logout(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  void me(const HttpRequest& request, const Segments&, const RestCallPtr& call);
  std::shared_ptr<const BrowserPlace> place() const { return flow_ == nullptr ? nullptr : flow_->place(); }

  Backend& backend_;
  const std::shared_ptr<SignInFlow> flow_;
};

}  // namespace gpusched::api
