#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpusched::access {
struct Caller;
}

namespace gpusched::api {

enum class HttpMethod : uint8_t { kGet, kHead, kPost, kPut, kDelete, kPatch, kOptions, kOther };

std::string_view to_string(HttpMethod method);

/// One request as it came; nothing but the header's syntax is checked.
struct HttpRequest {
  HttpMethod method = HttpMethod::kOther;
  std::string path;   ///< Still percent-encoded; starts with '/' unless it is "*".
  std::string query;  ///< The part behind the '?', still encoded.
  std::string body;
  std::string peer;  ///< The client's address, without port; over a Unix socket "unix:" and its uid.
  /// Over a Unix socket: whose process the client is, by the kernel's word. Null: nobody known.
  std::shared_ptr<const access::Caller> peer_caller;
  std::string requested_by;  ///< X-Requested-By: whom the client calls itself.
  std::string host, authorization, idempotency_key, origin, accept, content_type;
  std::string cookie;            ///< All Cookie headers, as one.
  int host_count = 0;            ///< Number of Host headers; `host` is the first.
  std::string fetch_site;        ///< Sec-Fetch-Site: what a browser says of the page that asks.
  bool wants_websocket = false;  ///< An upgrade to a WebSocket is asked for (RFC 6455, 4.1).
  std::string websocket_key, websocket_version;
  std::string request_id, traceparent;  ///< X-Request-Id, and the header of W3C Trace Context.
  std::string last_event_id;  ///< Last-Event-ID: the last that a client of an event stream was told.
  std::string cors_method, cors_headers;  ///< Access-Control-Request-Method and -Headers.
};

/// Whether the body of such a request is handed over as it arrives, not when it is complete.
using HttpStreams = std::function<bool(HttpMethod method, std::string_view path)>;

/// One answer. Content-Length, Connection and Date are the server's to add.
struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string_view content_type = "application/json";                  ///< In static storage.
  std::vector<std::pair<std::string_view, std::string>> headers = {};  ///< Names of static storage.
};

/// The phrase behind a status; "Unknown" for one that we never send.
std::string_view reason_phrase(int status);

/// Decodes %XX; nothing when an escape is broken or makes a NUL. `plus_is_space` as in queries.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space);

/// The decoded parameters of a query string, in order; nothing when an escape is broken.
using QueryParameters = std::vector<std::pair<std::string, std::string>>;
std::optional<QueryParameters> parse_query(std::string_view query);

}  // namespace gpusched::api
