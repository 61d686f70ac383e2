#pragma once

#include <string>

#include "base/result.h"
#include "client/http_client.h"
#include "client/json.h"

namespace gpusched {

class Grammar;

/// How an administrator's command reaches the running scheduler.
struct AdminAccess {
  /// Empty: this machine's, by its Unix socket where one can be believed, else at 127.0.0.1:8080.
  std::string url;
  std::string token_file;
  std::string ca_file;
};
/// Its options, for a command.
void declare_access(Grammar& grammar, AdminAccess& access);

/// The running scheduler, by its API, with the token that the options name or that this machine has.
class AdminClient {
 public:
  static Result<AdminClient> open(const AdminAccess& access);

  /// A good answer's JSON; of a refusal its sentence: kNotFound for 404, kUnavailable for others.
  Result<Json> call(HttpRequest request);
  Result<Json> get(const std::string& path) {
    return call({.method = "GET", .target = path, .repeatable = true});
  }

 private:
  explicit AdminClient(HttpClient client) : client_(std::move(client)) {}
  HttpClient client_;
};

}  // namespace gpusched
