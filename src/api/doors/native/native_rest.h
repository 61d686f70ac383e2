#pragma once

#include <google/protobuf/descriptor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "access/actions.h"
#include "api/contract/backend.h"
#include "api/contract/history.h"
#include "api/contract/machines.h"
#include "api/contract/names.h"
#include "api/contract/token.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/rest_query.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

/// A parameter of a query, as the document of the API shows it.
struct NativeParameter {
  enum class Type { kText, kCount, kFlag, kTexts } type = Type::kText;
  std::string_view name;
  std::string_view meaning;
  std::string_view pattern = {};  ///< For a text: a regular expression that all that are taken match.
  int64_t most = INT64_MAX;       ///< Greatest count; for texts their number.
};

class NativeRest;
struct NativeCall;

/// One call of the native API: what routes a request also makes its line in /v1/openapi.json.
struct NativeRoute {
  enum class Answer { kMessage, kEvents, kLines, kBytes, kDocument, kPage };
  HttpMethod method = HttpMethod::kGet;
  std::string_view path;       ///< Such as "v1/jobs/{job_id}".
  access::Action action;       ///< Action that the call is checked and audited as.
  std::string_view operation;  ///< Its name, for clients that are generated.
  std::string_view summary;    ///< One sentence.
  std::vector<NativeParameter> query = {};
  const google::protobuf::Descriptor* request = nullptr;   ///< Null: no body.
  const google::protobuf::Descriptor* response = nullptr;  ///< The answer, or each event or line.
  int status = 200;
  Answer answer = Answer::kMessage;
  void (NativeRest::*handle)(NativeCall&) = nullptr;
  const google::protobuf::Descriptor* alternative = nullptr;  ///< Another message for the body.
  bool takes_key = false;                                     ///< Safe to repeat by Idempotency-Key.
  std::vector<std::string_view> required = {};                ///< Fields that the body must have.
  bool optional_body = false;                                 ///< An empty body says that nothing is given.
};

/// One request on its way through its handler.
struct NativeCall {
  const HttpRequest& request;
  const NativeRoute& route;
  const std::vector<std::string>& path;  ///< Its segments.
  RestQuery query;
  RestCallPtr call;

  /// Answers with what is wrong with the query; false when nothing is.
  bool refused() const {
    if (query.problem()) call->fail(*query.problem());
    return query.problem().has_value();
  }
};

/// The native API over REST: everything under /v1, the JSON of the messages in proto/gpusched/v1. See
/// docs/reference/rest.md. Requests come on the server's thread; nothing blocks it.
class NativeRest {
 public:
  /// `sign_in`: how people get tokens of a provider, or nothing; null: they do not. Any thread. `banner`:
  /// what the document's page says of who looks at it, in HTML; null: nothing. `history`, `machines`: null:
  /// there are none.
  explicit NativeRest(Backend& backend, std::string version,
                      std::function<std::optional<SignIn>()> sign_in = nullptr,
                      std::function<std::string(const HttpRequest&)> banner = nullptr,
                      HistoryBackend* history = nullptr, MachineBackend* machines = nullptr)
      : backend_(backend),
        version_(std::move(version)),
        sign_in_(std::move(sign_in)),
        banner_(std::move(banner)),
        history_(history),
        machines_(machines) {}
  /// Where timers run; before the first request.
  void attach(HttpServer& server) { server_ = &server; }

  /// Whether a path is this door's.
  static bool takes(std::string_view path) {
    return path == "/v1" || path.starts_with("/v1/") || path == "/docs" || path == "/openapi.json";
  }
  /// Whether the body of such a request is read as it arrives.
  static bool streams_body(HttpMethod method, std::string_view path) {
    return method == HttpMethod::kPost && path == "/v1/jobs:stream";
  }
  /// Whether everybody is answered, who has no credential yet above all.
  static bool is_public(const HttpRequest& request) {
    return request.path == "/v1/login" ||
           request.path == "/docs";  // A browser sends no credential to a page.
  }
  void handle(HttpRequest&& request, const RestCallPtr& call);
  /// Says in the note what a request is about that nobody is to answer.
  static void name_call(const HttpRequest& request, CallNote& note);

  static std::span<const NativeRoute> routes();

 private:
  struct Routes;
  /// Null: there is none. `allowed` gets the methods of the path then.
  static const NativeRoute* find_route(HttpMethod method, const std::vector<std::string>& segments,
                                       std::string& allowed);
  void submit(NativeCall& call);
  void submit_stream(NativeCall& call);
  void plan(NativeCall& call);
  void list_jobs(NativeCall& call);
  void get_job(NativeCall& call);
  void cancel_job(NativeCall& call);
  void cancel_jobs(NativeCall& call);
  void get_history(NativeCall& call);
  void update_job(NativeCall& call);
  void hold_job(NativeCall& call);
  void release_job(NativeCall& call);
  void requeue_job(NativeCall& call);
  void rerun_job(NativeCall& call);
  void explain_job(NativeCall& call);
  void read_log(NativeCall& call);
  void watch_job(NativeCall& call);
  void watch(NativeCall& call);
  void create_tenant(NativeCall& call);
  void list_tenants(NativeCall& call);
  void get_tenant(NativeCall& call);
  void update_tenant(NativeCall& call);
  void delete_tenant(NativeCall& call);
  void edit_cluster(NativeCall& call);
  void create_node_token(NativeCall& call);
  void list_node_identities(NativeCall& call);
  void revoke_node(NativeCall& call);
  void create_key(NativeCall& call);
  void list_keys(NativeCall& call);
  void revoke_key(NativeCall& call);
  void bind_role(NativeCall& call);
  void list_nodes(NativeCall& call);
  void get_node(NativeCall& call);
  void drain_node(NativeCall& call);
  void resume_node(NativeCall& call);
  void reboot_node(NativeCall& call);
  void create_reservation(NativeCall& call);
  void list_reservations(NativeCall& call);
  void cancel_reservation(NativeCall& call);
  void create_service(NativeCall& call);
  void list_services(NativeCall& call);
  void get_service(NativeCall& call);
  void scale_service(NativeCall& call);
  void roll_out_service(NativeCall& call);
  void delete_service(NativeCall& call);
  void label_node(NativeCall& call);
  void confirm_dead(NativeCall& call);
  void remove_node(NativeCall& call);
  void set_condition(NativeCall& call);
  void get_cluster(NativeCall& call);
  void pause_starts(NativeCall& call);
  void resume_starts(NativeCall& call);
  void set_pause(NativeCall& call, bool paused);
  void get_quality(NativeCall& call);
  void get_moves(NativeCall& call);
  void apply_moves(NativeCall& call);
  void openapi(NativeCall& call);
  void docs(NativeCall& call);
  void get_login(NativeCall& call);
  void who_am_i(NativeCall& call);
  void list_history(NativeCall& call);
  void get_usage(NativeCall& call);
  void copy_history(NativeCall& call);
  void list_machines(NativeCall& call);

  Backend& backend_;
  HttpServer* server_ = nullptr;
  const std::string version_;
  const std::function<std::optional<SignIn>()> sign_in_;
  const std::function<std::string(const HttpRequest&)> banner_;
  HistoryBackend* const history_;
  MachineBackend* const machines_;
};

// --- For the door's own sources: how it reads bodies and sends answers. ---

/// Sends a good answer as the JSON of its message.
template <typename View, typename Message>
Done<View> answer_with(const NativeCall& call, void (*write)(const View&, Message&)) {
  return [reply = call.call, status = call.route.status, write](Answer<View> answer) {
    if (!answer) return reply->fail(answer.error());
    if constexpr (std::is_same_v<View, TenantView>) reply->note().line.resource = tenant_name(answer->id);
    if constexpr (std::is_same_v<View, KeyView>) reply->note().line.resource = key_name(answer->id);
    Message message;
    write(*answer, message);
    reply->send(status, native_json(message));
  };
}

/// Reads the body into the messages, or answers with what is wrong with it.
inline bool read_body(const NativeCall& call, std::span<google::protobuf::Message* const> roots,
                      NativeBody& body) {
  const auto problem = read_native_json(call.request.body, roots, body);
  if (problem) call.call->fail(*problem);
  return !problem;
}

inline std::string requester_of(const NativeCall& call) {
  return shown_requester(call.request.requested_by, call.request.peer);
}

}  // namespace gpusched::api
