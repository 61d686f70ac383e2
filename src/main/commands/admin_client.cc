#include "main/commands/admin_client.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "client/local_token.h"
#include "grammar/grammar.h"
#include "ops/machine.h"

namespace gpusched {
namespace {

constexpr int kNotFound = 404;
constexpr const char* kUrlDefault = "http://127.0.0.1:8080";

std::string url_of_this_machine() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string socket = find_local_socket(runtime == nullptr ? "" : runtime);
  return socket.empty() ? kUrlDefault : socket;
}

}  // namespace

void declare_access(Grammar& grammar, AdminAccess& access) {
  grammar
      .option("--api-url", "URL", &access.url,
              "URL of the scheduler's REST API (default: GPU_SCHEDULER_URL, then that of this machine's "
              "scheduler)")
      .from_environment("GPU_SCHEDULER_URL");
  grammar
      .option("--token-file", "FILE", &access.token_file,
              "File with the shared token, a copy of the scheduler's DATA_DIR/token (default: "
              "GPU_SCHEDULER_TOKEN_FILE)")
      .completes(Complete::kFile)
      .from_environment("GPU_SCHEDULER_TOKEN_FILE");
  grammar
      .option("--ca-file", "FILE", &access.ca_file,
              "File with the certificates (PEM) that an https URL is checked against (default: "
              "GPU_SCHEDULER_CA_FILE)")
      .completes(Complete::kFile)
      .from_environment("GPU_SCHEDULER_CA_FILE");
}

Result<AdminClient> AdminClient::open(const AdminAccess& access) {
  const std::string url = access.url.empty() ? url_of_this_machine() : access.url;
  HttpClientOptions client{.url = url, .ca_file = access.ca_file};
  if (!access.token_file.empty()) {
    const std::optional<std::string> token = ops::read_line(access.token_file);
    if (!token || token->empty()) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "cannot read a token from " + access.token_file};
    }
    client.token = *token;
    if (const Result<Unit> may = check_token_receiver(url, access.token_file); !may.ok()) return may.error();
  } else {
    client.token = find_local_token(url, access.ca_file).value_or("");
  }
  Result<HttpClient> opened = HttpClient::create(client);
  if (!opened.ok()) return opened.error();
  return AdminClient(std::move(*opened));
}

Result<Json> AdminClient::call(HttpRequest request) {
  const std::string target = request.target;
  const Result<HttpAnswer> answer = client_.request(request);
  if (!answer.ok() && (answer.error().code == ErrorCode::kUnauthenticated ||
                       answer.error().code == ErrorCode::kInvalidArgument)) {
    return Error{.code = answer.error().code, .message = client_.url() + ": " + answer.error().message};
  }
  if (!answer.ok()) {
    return Error{.code = answer.error().code,
                 .message = "no scheduler answers at " + client_.url() + ": " + answer.error().message +
                            "; give the URL of yours with --api-url"};
  }
  Result<Json> json = Json::parse(answer->body);
  if (answer->status / 100 == 2 && json.ok()) return json;
  const bool told = json.ok() && !(*json)["error"].text().empty();
  std::string why = told ? (*json)["error"].text() : "HTTP status " + std::to_string(answer->status);
  if (answer->status == 401) why += "; give a copy of the scheduler's DATA_DIR/token with --token-file";
  return Error{.code = answer->status == kNotFound ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
               .message = why};
}

}  // namespace gpusched
