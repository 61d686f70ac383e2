#include "api/http/rest_gate.h"

#include <algorithm>

#include "api/contract/json_writer.h"
#include "api/contract/token.h"
#include "api/http/request_rules.h"
#include "base/net/ip_network.h"

namespace gpusched::api {
namespace {

constexpr std::string_view kMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
constexpr std::string_view kEvents = "text/event-stream";
constexpr std::string_view kHeaders =
    "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id, X-Requested-By, traceparent, "
    "tracestate";

/// Whether it came over loopback or a Unix socket.
bool is_near(const HttpRequest& request) {
  return is_loopback(request.peer) || request.peer.starts_with("unix:");
}

/// Whether the host of a request or an origin is an address, and one that is not of the Internet where
/// `is_inside`.
bool is_numeric(std::string_view host, bool is_inside = false) {
  if (!parse_ip_address(host)) return false;
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const std::optional<IpNetwork> alone = IpNetwork::parse(host);
  return !is_inside || (alone && !alone->has_public_address());
}

/// "host" of "host:port" or "[::1]:port".
std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.rfind(':'));
}

/// Whether a list such as "content-type, authorization" has the name, which is in lower case.
bool lists_header(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view one = list.substr(0, comma);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    while (one.starts_with(' ') || one.starts_with('\t')) one.remove_prefix(1);
    while (one.ends_with(' ') || one.ends_with('\t')) one.remove_suffix(1);
    const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
    if (std::ranges::equal(one, name, same)) return true;
  }
  return false;
}

HttpResponse error_response(const ApiError& error, ErrorWriter writer) {
  ErrorAnswer answer = writer(error);
  HttpResponse response{.status = answer.status, .body = std::move(answer.body)};
  if (error.retry_after.ns > 0) {
    response.headers.emplace_back("Retry-After",
                                  std::to_string((error.retry_after.ns + 999'999'999) / 1'000'000'000));
  }
  if (error.kind == ErrorKind::kUnauthenticated) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

ApiError foreign_page() {
  return {ErrorKind::kPermissionDenied,
          "requests from web pages of other origins are refused; allow the origin with "
          "api.cors_enabled and api.cors_origins, or send the shared token"};
}

}  // namespace

ErrorAnswer plain_error(const ApiError& error) {
  return {.status = row_of(error.kind).http_status, .body = error_json(error)};
}

HttpResponse RestCall::decorated(HttpResponse response) {
  if (meter_ != nullptr) meter_->count(response.status, began_);
  const bool failed = response.status >= 400;  // Without an error: of a method, or of health.
  if (!failed) note_.tell(nullptr);
  note_.drop();
  add_headers(response);
  return response;
}

void RestCall::add_headers(HttpResponse& response) const {
  response.headers.emplace_back("X-Request-Id",
                                client_request_id_.empty() ? to_string(request_) : client_request_id_);
  // A cache keeps what was sent for a cookie, if nothing says otherwise.
  const bool by_cookie = caller_ != nullptr && caller_->session != 0;
  const auto is_told = [](const auto& header) { return header.first == "Cache-Control"; };
  if (by_cookie && std::ranges::none_of(response.headers, is_told))
    response.headers.emplace_back("Cache-Control", "no-store");
  if (allow_origin_.empty()) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", allow_origin_);
  response.headers.emplace_back("Access-Control-Expose-Headers", "Retry-After, X-Request-Id");
  if (allow_origin_ != "*") response.headers.emplace_back("Vary", "Origin");
}

void RestCall::send(HttpResponse response) { reply_.send(decorated(std::move(response))); }
void RestCall::send(int status, std::string body) { send({.status = status, .body = std::move(body)}); }
void RestCall::fail(const ApiError& error) {
  note_.tell(&error);
  send(error_response(error, errors_));
}
void RestCall::send_at_flush(int status, std::string body) {
  reply_.send_at_flush(decorated({.status = status, .body = std::move(body)}));
}
void RestCall::fail_at_flush(const ApiError& error) {
  note_.tell(&error);
  reply_.send_at_flush(decorated(error_response(error, errors_)));
}

void RestCall::stay_open(const OpenRequest& open, std::optional<access::Action> action,
                         std::function<void(const ApiError&)> end) const {
  Answer<std::shared_ptr<void>> token = doorkeeper_->while_valid(caller_, action, end);
  if (!token) return end(token.error());
  open.keep(std::move(*token));
}

HttpStream RestCall::stream(HttpResponse head, std::function<void(const ApiError&)> end) {
  const OpenRequest open = reply_.open_request();
  const std::optional<access::Action> action = note_.line.action;
  const bool has_events = head.content_type == kEvents;
  HttpStream stream = reply_.stream(decorated(std::move(head)));
  if (!can_end()) return stream;
  stay_open(open, action, [open, has_events, end = std::move(end)](const ApiError& error) {
    if (end != nullptr) return open.call([end, error] { end(error); });
    open.end({.last_piece = has_events ? "event: error\ndata: " + error_json(error) + "\n\n" : ""});
  });
  return stream;
}

WebSocket RestCall::upgrade(const std::string& websocket_key, std::size_t message_bytes_max,
                            WebSocket::Handlers handlers, std::string (*last_message)(const ApiError&)) {
  const OpenRequest open = reply_.open_request();
  WebSocket socket = reply_.upgrade(websocket_key, message_bytes_max, std::move(handlers));
  if (!can_end()) return socket;
  stay_open(open, note_.line.action, [open, last_message](const ApiError& error) {
    open.end({.last_message = last_message == nullptr ? "" : last_message(error), .reason = error.message});
  });
  return socket;
}

void RestCall::on_gone(std::function<void()> gone) {
  reply_.on_gone(std::move(gone));
  if (!can_end()) return;
  const OpenRequest open = reply_.open_request();
  HttpResponse head;
  add_headers(head);
  stay_open(open, note_.line.action, [open, errors = errors_, head = std::move(head)](const ApiError& error) {
    HttpResponse answer = error_response(error, errors);
    answer.headers.insert(answer.headers.end(), head.headers.begin(), head.headers.end());
    open.end({.answer = std::move(answer)});
  });
}

void RestGate::handle(HttpRequest&& request, HttpReply reply) {
  std::string allow_origin;
  if (!request.origin.empty() && origin_allowed(request.origin)) {
    const bool any = std::find(options_.cors_origins.begin(), options_.cors_origins.end(), "*") !=
                     options_.cors_origins.end();
    allow_origin = any ? "*" : request.origin;
  }
  const bool reads = request.method == HttpMethod::kGet || request.method == HttpMethod::kHead;
  CallNote note(options_.audit, options_.door);
  note.line.peer = request.peer;
  note.line.claimed_by = request.requested_by;
  note.name_call(request.request_id, request.traceparent);
  const auto call = std::make_shared<RestCall>(std::move(reply), request.method, allow_origin,
                                               reads ? options_.reads : options_.writes, std::move(note));
  if (options_.errors_of != nullptr) call->write_errors(options_.errors_of(request));
  if (const auto problem = problem_of_text(request)) return refuse(request, call, *problem);
  if (request.method == HttpMethod::kOptions && !allow_origin.empty() && !request.cors_method.empty()) {
    // It is answered as the call would be, so that no page is told yes and then no: it says whether the call
    // will have a credential.
    const bool would_read = request.cors_method == "GET" || request.cors_method == "HEAD";
    const bool is_open = would_read && options_.is_public != nullptr && options_.is_public(request);
    if (!is_open && !lists_header(request.cors_headers, "authorization")) {
      if (const auto refused = check_page(request)) return call->fail(*refused);
    }
    HttpResponse response{.status = 204};
    response.headers.emplace_back("Access-Control-Allow-Methods", std::string(kMethods));
    response.headers.emplace_back("Access-Control-Allow-Headers", std::string(kHeaders));
    response.headers.emplace_back("Access-Control-Max-Age", "600");
    call->send(std::move(response));
    return;
  }
  // Before the token is looked at: whoever tries tokens is slowed down too.
  if (options_.admission != nullptr && options_.is_rated) {
    if (const auto refused = options_.admission->take(request.peer)) return refuse(request, call, *refused);
  }
  const bool is_public = reads && options_.is_public != nullptr && options_.is_public(request);
  const std::shared_ptr<const BrowserPlace> place =
      is_public || options_.sessions == nullptr ? nullptr : options_.sessions->place();
  const std::optional<FoundCookie> session = session_in(request, place.get());
  if (session) {
    if (const auto refused = check_own_page(request, *place)) return refuse(request, call, *refused);
  }
  Answer<CallerPtr> caller = is_public ? Answer<CallerPtr>(anonymous_caller())
                             : session ? options_.sessions->holder_of_session(session->value)
                                       : caller_of(request);
  if (!caller) return refuse(request, call, caller.error());
  call->set_caller(std::move(*caller), options_.doorkeeper);
  // A caller that sends a credential is no page of a stranger's. A Unix socket that somebody forwards to a
  // port may be reached by one.
  if (request.authorization.empty() && !is_public && !session) {
    if (const auto refused = check_page(request)) return refuse(request, call, *refused);
  }
  if (options_.admission != nullptr) {
    Answer<CallTicket> ticket = options_.admission->open(*call->caller(), request.peer, CallRoom::kHttp,
                                                         [&] { return need_of_call(request, call->note()); });
    if (!ticket) return refuse(request, call, ticket.error());
    call->hold(std::move(*ticket));
  }
  next_(std::move(request), call);
}

/// A header and the kernel's word go before a cookie, which a browser sends with whatever it asks for.
std::optional<FoundCookie> RestGate::session_in(const HttpRequest& request, const BrowserPlace* place) const {
  if (place == nullptr || !request.authorization.empty() || request.peer_caller != nullptr ||
      request.peer.starts_with("unix:"))
    return std::nullopt;
  const FoundCookie found = find_cookie(request.cookie, session_cookie(*place));
  return found.is_there ? std::optional(found) : std::nullopt;
}

Answer<CallerPtr> RestGate::caller_of(const HttpRequest& request) const {
  if (options_.admission == nullptr)
    return options_.doorkeeper.caller_of(request.authorization, request.peer_caller);
  return options_.admission->caller_of(options_.doorkeeper, request.peer, request.authorization,
                                       request.peer_caller);
}

std::string RestGate::payer_of(const HttpRequest& request) const {
  if (options_.admission == nullptr) return request.peer;
  return options_.admission->payer_of(options_.doorkeeper, request.peer, request.authorization,
                                      request.peer_caller);
}

CallNeed RestGate::need_of_call(const HttpRequest& request, CallNote& note) const {
  if (options_.name_call != nullptr && !note.line.action) options_.name_call(request, note);
  return need_of(note.line.action);
}

void RestGate::refuse(const HttpRequest& request, const RestCallPtr& call, const ApiError& error) const {
  if (options_.name_call != nullptr && call->note().is_open()) options_.name_call(request, call->note());
  if (options_.refuse_page != nullptr && options_.refuse_page(request, call, error)) return;
  // With where the token is, for a client on this machine that may be allowed to read it.
  const bool told_where =
      error.kind == ErrorKind::kUnauthenticated && !options_.token_file.empty() && call->has_plain_errors();
  if (!told_where || !is_loopback(request.peer)) return call->fail(error);
  call->note().tell(&error);
  HttpResponse response = error_response(error, plain_error);
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("error", error.message).field("code", row_of(error.kind).code);
  json.field("token_file", options_.token_file).end_object();
  response.body = std::move(out);
  call->send(std::move(response));
}

bool RestGate::origin_allowed(std::string_view origin) const {
  if (!options_.cors_enabled) return false;
  return std::any_of(options_.cors_origins.begin(), options_.cors_origins.end(),
                     [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

bool RestGate::is_our_name(std::string_view host) const {
  std::string name(without_port(host));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return is_loopback(name) ||
         std::find(options_.host_names.begin(), options_.host_names.end(), name) != options_.host_names.end();
}

/// A page reaches loopback under a name of its own whose address it changed, which the Host header shows; as
/// another site, which Sec-Fetch-Site and, in writes, Origin show; or not at all.
std::optional<ApiError> RestGate::check_page(const HttpRequest& request) const {
  // A page that changes the address of its own name asks for that name, never for an address.
  const bool is_near_call = is_near(request);
  const bool has_our_name =
      is_our_name(request.host) || (!is_near_call && is_numeric(without_port(request.host)));
  if (!is_near_call && (request.host_count > 1 || (request.host_count == 1 && !has_our_name))) {
    return ApiError{
        ErrorKind::kPermissionDenied,
        "from other machines this scheduler answers requests without a credential only under its address "
        "and its own host name, and the Host header of this request has another name; use one of those, "
        "send a credential, or have the name added to api.host_names"};
  }
  if (request.host_count > 1 || (request.host_count == 1 && !has_our_name)) {
    return ApiError{ErrorKind::kPermissionDenied,
                    "this scheduler answers requests without a credential only under loopback names, and the "
                    "Host header of this request has another name; use 127.0.0.1, send the shared token, or "
                    "add the name to api.host_names"};
  }
  if (request.origin.empty()) {
    const bool other_site = request.fetch_site == "cross-site" || request.fetch_site == "same-site";
    return other_site ? std::optional(foreign_page()) : std::nullopt;
  }
  const std::size_t scheme = request.origin.find("://");
  const std::string_view origin_host =
      scheme == std::string::npos ? std::string_view() : std::string_view(request.origin).substr(scheme + 3);
  if (!origin_host.empty() && origin_host == request.host) return std::nullopt;
  // "*" is for pages with a credential, for those of this machine, and from other machines for those of
  // addresses that are not of the Internet.
  const bool named = std::find(options_.cors_origins.begin(), options_.cors_origins.end(), request.origin) !=
                     options_.cors_origins.end();
  const std::string_view origin_name = without_port(origin_host);
  const bool is_inside = is_loopback(origin_name) || (!is_near_call && is_numeric(origin_name, true));
  if (origin_allowed(request.origin) && (named || is_inside)) return std::nullopt;
  return foreign_page();
}

}  // namespace gpusched::api
