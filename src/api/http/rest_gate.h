#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/calls/call_note.h"
#include "api/contract/browser_sessions.h"
#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "api/http/cookies.h"
#include "api/http/http_server.h"
#include "api/http/request_meter.h"
#include "api/limits/admission.h"

/// The gate before every REST door: token, origins, rates, and the shape of answers.
namespace gpusched::api {

/// An error as a door writes it.
struct ErrorAnswer {
  int status = 500;
  std::string body;
};
using ErrorWriter = ErrorAnswer (*)(const ApiError& error);
/// As most doors do: see `error_json`.
ErrorAnswer plain_error(const ApiError& error);

class RestCall;
struct RestOptions {
  Doorkeeper doorkeeper = {};
  std::string token_file = {};  ///< Told to clients on this machine that lack the token; empty: nothing.
  /// Names under which callers without a credential reach this server, beside those of loopback.
  std::vector<std::string> host_names = {};
  bool cors_enabled = false;
  std::vector<std::string> cors_origins;  ///< "*": any.
  Admission* admission = nullptr;         ///< Null: nobody is limited. It must outlive the gate.
  bool is_rated = true;                   ///< The rate of the client's address holds here.
  std::string version;                    ///< Shown by /health.
  /// Meters of the answers to GET and HEAD, and to all others; null: they are not counted. They must outlive
  /// the gate.
  RequestMeter* reads = nullptr;
  RequestMeter* writes = nullptr;
  audit::AuditLog* audit = nullptr;  ///< Null: none. It must outlive the gate.
  audit::Door door = audit::Door::kRest;
  /// Whether a request is answered to everybody, whatever credential it has and whoever's page it is from: it
  /// reads what is no secret. Null: none is.
  bool (*is_public)(const HttpRequest&) = nullptr;
  /// Sessions of those who signed in with a browser; null: no cookie is looked at. It must outlive the gate.
  const SessionHolders* sessions = nullptr;
  /// Answers what the gate refuses of a request for a page, which people shall be able to read. False: it is
  /// about no page, and the gate answers. Null: there are no pages.
  std::function<bool(const HttpRequest&, const std::shared_ptr<RestCall>&, const ApiError&)> refuse_page =
      nullptr;
  /// How errors about a request are written, the gate's own too. Null: all plainly.
  ErrorWriter (*errors_of)(const HttpRequest&) = nullptr;
  /// Says what a request is about that the gate itself refuses; of others their doors say it.
  std::function<void(const HttpRequest&, CallNote&)> name_call = nullptr;
};

/// One request that is being answered. Made on the server's thread; answered once, from any thread.
class RestCall {
 public:
  /// `meter` counts the answer; null: nothing does.
  RestCall(HttpReply reply, HttpMethod method, std::string allow_origin, RequestMeter* meter = nullptr,
           CallNote note = {})
      : reply_(std::move(reply)),
        allow_origin_(std::move(allow_origin)),
        meter_(meter),
        method_(method),
        request_(note.line.request),
        client_request_id_(note.line.client_request_id),
        note_(std::move(note)) {}

  const CallerPtr& caller() const { return caller_; }
  /// By the gate, before anybody else has the call. The doorkeeper let the caller in; it must outlive the
  /// server's shutdown.
  void set_caller(CallerPtr caller, const Doorkeeper& doorkeeper) {
    note_.line.caller = caller;
    caller_ = std::move(caller);
    doorkeeper_ = &doorkeeper;
  }
  /// The call's place among those of its caller. By the gate, on the server's thread.
  void hold(CallTicket ticket) {
    ticket_ = std::make_shared<CallTicket>(std::move(ticket));
    reply_.hold(ticket_);
  }
  /// Before an answer that goes on for as long as there is something to tell: why the caller may not have one
  /// more.
  std::optional<ApiError> become_stream() { return ticket_ ? ticket_->become_stream() : std::nullopt; }
  /// Before a session: the same.
  std::optional<ApiError> become_session() { return ticket_ ? ticket_->become_session() : std::nullopt; }
  /// The answer tells it. The code that answers may say more in it before, and code that goes on afterwards
  /// takes it.
  CallNote& note() { return note_; }
  /// By the gate, before anybody else has the call.
  void write_errors(ErrorWriter writer) { errors_ = writer; }
  ErrorAnswer written(const ApiError& error) const { return errors_(error); }
  bool has_plain_errors() const { return errors_ == plain_error; }

  void send(int status, std::string body);
  void fail(const ApiError& error);
  /// The same for answers that HttpServer::flush follows: those of writes.
  void send_at_flush(int status, std::string body);
  void fail_at_flush(const ApiError& error);
  void send(HttpResponse response);
  // Streams and WebSockets end when the caller's key ends, or loses the role that they need: it looks as if
  // the client had gone, which is told why.

  /// `end` is called instead, on the server's thread, and ends the stream; none: events get a last one, named
  /// `error`, and all else breaks off.
  HttpStream stream(HttpResponse head, std::function<void(const ApiError&)> end = nullptr);
  HttpBody body() const { return reply_.body(); }
  /// `last_message`: what is said before the goodbye; null: nothing.
  WebSocket upgrade(const std::string& websocket_key, std::size_t message_bytes_max,
                    WebSocket::Handlers handlers, std::string (*last_message)(const ApiError&) = nullptr);
  void on_gone(std::function<void()> gone);
  HttpMethod method() const { return method_; }

 private:
  /// The response with the headers that every one has; it is counted, and told to the audit.
  HttpResponse decorated(HttpResponse response);
  void add_headers(HttpResponse& response) const;
  /// Has `end` called when the caller may no longer do this.
  void stay_open(const OpenRequest& open, std::optional<access::Action> action,
                 std::function<void(const ApiError&)> end) const;
  bool can_end() const { return doorkeeper_ != nullptr && api::can_end(*caller_); }
  HttpReply reply_;
  std::string allow_origin_;  ///< Empty: no CORS headers.
  ErrorWriter errors_ = plain_error;
  RequestMeter* meter_;
  RequestMeter::Clock::time_point began_ = RequestMeter::Clock::now();
  HttpMethod method_;
  CallerPtr caller_;
  const Doorkeeper* doorkeeper_ = nullptr;
  std::shared_ptr<CallTicket> ticket_;  ///< None: nobody is limited.
  audit::RequestId request_;
  std::string client_request_id_;  ///< The client's name for it; empty: none.
  CallNote note_;
};
using RestCallPtr = std::shared_ptr<RestCall>;

/// Called on the server's thread with every request that may pass.
using RestHandler = std::function<void(HttpRequest&&, const RestCallPtr&)>;

/// Lets requests pass, or answers them itself. One thread.
class RestGate {
 public:
  RestGate(RestOptions options, RestHandler next) : options_(std::move(options)), next_(std::move(next)) {}

  void handle(HttpRequest&& request, HttpReply reply);
  /// The party that is charged for the bytes of a request's body; its head is there.
  std::string payer_of(const HttpRequest& request) const;

 private:
  Answer<CallerPtr> caller_of(const HttpRequest& request) const;
  /// The cookie of a session in it; nothing: it has none, or something goes before it.
  std::optional<FoundCookie> session_in(const HttpRequest& request, const BrowserPlace* place) const;
  CallNeed need_of_call(const HttpRequest& request, CallNote& note) const;
  /// Answers what the gate refuses.
  void refuse(const HttpRequest& request, const RestCallPtr& call, const ApiError& error) const;
  bool origin_allowed(std::string_view origin) const;
  bool is_our_name(std::string_view host) const;
  /// Why this may be the doing of a page in somebody's browser, which needs no credential to reach a loopback
  /// address; nothing when it cannot be, or the page may.
  std::optional<ApiError> check_page(const HttpRequest& request) const;

  RestOptions options_;
  RestHandler next_;
};

}  // namespace gpusched::api
