#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace gpusched {

struct HttpClientOptions {
  /// "http://host[:port][/prefix]", "https://..." or "unix:///path"; without a scheme http is meant, without
  /// a port 80 or 443.
  std::string url;
  /// Addresses of others that are one service with the first, as `url`. One that does not answer is passed
  /// over, and the next requests go to the one that did.
  std::vector<std::string> other_urls = {};
  std::string token = {};    ///< Sent as `Authorization: Bearer`; empty: no such header.
  std::string ca_file = {};  ///< PEM: whom https trusts; empty: the machine's authorities.
  /// PEM: the certificate of the one server that https trusts, whatever its name. Instead of `ca_file`.
  std::string server_certificate = {};
  Duration connect_timeout = seconds(5);
  std::size_t answer_bytes_max = std::size_t{256} << 20;
  /// Whether an address that the host's name was resolved to may be connected to; 4 or 16 bytes. When one may
  /// not, none is, and nothing is sent: kPermissionDenied. Null: any may.
  std::function<bool(std::span<const uint8_t>)> address_allowed = nullptr;
  std::string user_agent = "gpu-cli";
  /// Told all bytes of requests, in order and each once, right before they are sent, and before they are
  /// encrypted. False: they are not sent, and the request fails with kUnavailable. Null: nobody is told.
  std::function<bool(std::string_view)> before_send = nullptr;
};

/// One request. A target is a path with its query, put behind the URL's prefix.
struct HttpRequest {
  std::string method;
  std::string target;
  std::string body = {};  ///< JSON, unless `headers` have another Content-Type; empty: none.
  std::vector<std::pair<std::string, std::string>> headers = {};
  Duration timeout = seconds(30);  ///< Limit of the exchange; for a stream, until its head.
  /// Doing it twice is the same as doing it once (a GET, or a POST with an Idempotency-Key), so that it is
  /// sent once more, of several addresses to each, when the connection breaks before the answer.
  bool repeatable = false;
};

struct HttpAnswer {
  int status = 0;
  std::string body;  ///< Body; empty for a stream that began with 2xx.
  std::string retry_after;
  int64_t file_size = -1;  ///< Size of a streamed file (`File-Size`); -1: unknown.
};

/// Called with each piece of a streamed body, as it arrives. False ends the stream.
using HttpOnData = std::function<bool(std::string_view)>;
/// Called once, with a 2xx answer's head, before its body.
using HttpOnHead = std::function<void(const HttpAnswer&)>;

/// A blocking HTTP/1.1 client that keeps one connection open. Not thread-safe: one for each thread.
///
/// An answer with any status is a value. Errors: kInvalidArgument (the URL), kUnavailable (nobody answers
/// there, or the connection broke during a GET), kUnauthenticated (https: the server's certificate is not
/// trusted, or not for that host), kTimeout, kOutcomeUnknown (the connection broke after the
/// request was sent: it may have been done), kTooLarge (an answer of more bytes than are allowed). Each
/// message is one sentence without an end, such as "connection refused".
class HttpClient {
 public:
  /// Does not connect yet.
  static Result<HttpClient> create(HttpClientOptions options);
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  Result<HttpAnswer> request(const HttpRequest& request);
  /// Gives the body to `on_data` when the status is 2xx, else collects it. There is no limit on how long a
  /// stream takes or is silent.
  Result<HttpAnswer> stream(const HttpRequest& request, const HttpOnData& on_data,
                            const HttpOnHead& on_head = nullptr);

  /// The next request goes to the next one of several addresses: the present one answers, and does not serve.
  void pass_over();
  /// "http://127.0.0.1:8080", for messages; of several addresses all, with commas between them.
  const std::string& url() const;

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Takes "URL,URL": the addresses of schedulers that are one.
void set_urls(HttpClientOptions& options, std::string_view list);
/// Those addresses, one or more; white space around them and slashes at their ends are left out.
std::vector<std::string> split_urls(std::string_view list);

/// Percent-encodes everything but RFC 3986's unreserved characters: for one path segment or query value.
std::string url_encoded(std::string_view text);

/// Address of a URL of HttpClientOptions.
struct HttpEndpoint {
  std::string unix_socket = {};  ///< Path of the Unix socket of a unix:// URL; then host and port are names.
  std::string host;              ///< Host without the brackets of an IPv6 address.
  std::string port;
  bool tls = false;         ///< https.
  std::string prefix = {};  ///< Empty, or begins with '/' and does not end with one.
};
Result<HttpEndpoint> parse_http_url(std::string_view url);

/// How the URL of a Unix socket begins; its absolute path follows.
inline constexpr std::string_view kUnixScheme = "unix://";

/// kInvalidArgument when `ca_file` is given, for an https URL, and holds no certificate.
Result<Unit> check_ca_file(const HttpClientOptions& options);

}  // namespace gpusched
