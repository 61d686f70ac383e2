#pragma once

#include <span>
#include <string_view>

#include "access/actions.h"
#include "api/contract/backend.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// Sessions and files of jobs over HTTP, under both prefixes, /v1 and /api/v1:
///
///   GET /v1/jobs/{id}/session   an upgrade to a WebSocket; see docs/reference/sessions.md for what is said
///   there GET /v1/jobs/{id}/files?path=results.csv
///
/// Requests come on the server's thread; nothing blocks it.
class SessionRest {
 public:
  SessionRest(Backend& backend, int64_t file_bytes_max)
      : backend_(backend), file_bytes_max_(file_bytes_max) {}

  /// The last segment of such a path, and what the caller does by it.
  struct Path {
    std::string_view last;
    access::Action action;
  };
  static std::span<const Path> paths();

  void attach(HttpServer& server) { server_ = &server; }
  /// Answers the request and returns true, when it is for one of the paths above.
  bool handle(const HttpRequest& request, const RestCallPtr& call);
  /// Says in the note what a request is about, when it is for one of them.
  static void name_call(const HttpRequest& request, CallNote& note);

 private:
  void open_session(const HttpRequest& request, JobId job, const RestCallPtr& call);
  void read_file(const HttpRequest& request, JobId job, const RestCallPtr& call);

  Backend& backend_;
  HttpServer* server_ = nullptr;
  const int64_t file_bytes_max_;
};

}  // namespace gpusched::api
