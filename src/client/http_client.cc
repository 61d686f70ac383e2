// The one file of the client that includes Boost.Beast.
#include "client/http_client.h"

#include <algorithm>
#include <array>
#include <boost/asio/error.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>
#include <optional>

#include "client/connection.h"

namespace gpusched {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using client_internal::Connection;

constexpr uint32_t kHeadBytesMax = 64 * 1024;
constexpr size_t kPieceBytes = 64 * 1024;
constexpr std::size_t kTriesMax = 2;
constexpr Duration kConnectTimeoutOfSeveral = seconds(2);  ///< Another one may answer at once.

/// How an exchange went wrong.
struct Failure {
  error_code code;
  bool connected = false;  ///< The request may have reached the scheduler.
  bool too_large = false;
  std::optional<Error> no_connection = {};  ///< Why there was none.

  bool timed_out() const { return code == asio::error::timed_out; }
};

std::string reason_text(const error_code& code) {
  if (code == asio::error::eof || code == http::error::end_of_stream ||
      code == http::error::partial_message) {
    return "the connection was closed";
  }
  if (code == asio::error::connection_reset || code == asio::error::broken_pipe)
    return "the connection broke";
  if (code == asio::error::timed_out) return "no answer in time";
  if (code.category() == http::make_error_code(http::error::bad_version).category()) {
    return "the server does not speak HTTP";
  }
  std::string text = code.message();
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

std::string size_text(size_t bytes) {
  const bool is_mebi = bytes % (size_t{1} << 20) == 0;
  return is_mebi ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
}

Error to_error(const Failure& failure, bool is_get, size_t bytes_max) {
  if (failure.no_connection && !failure.connected) return *failure.no_connection;
  Error error{.code = ErrorCode::kUnavailable,
              .message = failure.no_connection ? failure.no_connection->message : reason_text(failure.code)};
  if (failure.too_large)
    return {.code = ErrorCode::kTooLarge, .message = "the answer is larger than " + size_text(bytes_max)};
  if (!failure.connected) return error;
  if (!is_get) {
    error.code = ErrorCode::kOutcomeUnknown;
  } else if (failure.timed_out()) {
    error.code = ErrorCode::kTimeout;
  }
  return error;
}

}  // namespace

struct HttpClient::Impl {
  /// One of the addresses.
  struct Place {
    HttpEndpoint endpoint;
    std::string host_header;
    std::string url;
  };
  HttpClientOptions options;
  std::vector<Place> places;
  std::size_t at = 0;  ///< The place that requests go to.
  std::string urls;    ///< URLs of all places, for messages.
  std::unique_ptr<Connection> connection;
  beast::flat_buffer buffer;
  HttpOnHead on_head;  ///< Handler of the stream that is under way.

  Result<Unit> add_place(const std::string& url);
  Result<Unit> connect();
  void pass_over() {
    connection = nullptr;
    at = (at + 1) % places.size();
  }
  error_code send(const HttpRequest& request);
  std::optional<Failure> exchange(const HttpRequest& request, const HttpOnData* on_data, HttpAnswer& answer);
  std::optional<Failure> read_body(http::response_parser<http::buffer_body>& parser,
                                   const HttpOnData* on_data, HttpAnswer& answer);
  Result<HttpAnswer> perform(const HttpRequest& request, const HttpOnData* on_data);
};

Result<Unit> HttpClient::Impl::add_place(const std::string& url) {
  const Result<HttpEndpoint> endpoint = parse_http_url(url);
  if (!endpoint) return endpoint.error();
  const bool ipv6 = endpoint->host.find(':') != std::string::npos;
  Place place{.endpoint = *endpoint,
              .host_header = (ipv6 ? "[" + endpoint->host + "]" : endpoint->host) + ":" + endpoint->port,
              .url = url};
  if (endpoint->unix_socket.empty())
    place.url = (endpoint->tls ? "https://" : "http://") + place.host_header + endpoint->prefix;
  urls += (places.empty() ? "" : ",") + place.url;
  places.push_back(std::move(place));
  return Unit{};
}

/// Tries each place once. The error is that of all; if they differ, each with its place.
Result<Unit> HttpClient::Impl::connect() {
  std::optional<Error> trouble;
  std::string reasons;
  bool differ = false;
  for (std::size_t tried = 0; tried < places.size(); ++tried) {
    Result<std::unique_ptr<Connection>> opened = Connection::open(places[at].endpoint, options);
    if (opened) {
      connection = std::move(*opened);
      buffer.clear();
      buffer.reserve(kPieceBytes);  // As much as it has room for is read at a time; at first 512 bytes.
      return Unit{};
    }
    reasons += (reasons.empty() ? "" : "; ") + places[at].url + ": " + opened.error().message;
    differ = differ || (trouble && trouble->message != opened.error().message);
    // Nobody being there says less than somebody who is not believed.
    if (!trouble || trouble->code == ErrorCode::kUnavailable) trouble = opened.error();
    pass_over();
  }
  if (differ) trouble->message = reasons;
  return *trouble;
}

error_code HttpClient::Impl::send(const HttpRequest& request) {
  http::request<http::string_body> message;
  message.version(11);
  message.method_string(request.method);
  message.target(places[at].endpoint.prefix + request.target);
  message.set(http::field::host, places[at].host_header);
  message.set(http::field::user_agent, options.user_agent);
  message.set(http::field::accept, "application/json");
  if (!options.token.empty()) message.set(http::field::authorization, "Bearer " + options.token);
  for (const auto& [name, value] : request.headers) message.set(name, value);
  if (!request.body.empty()) {
    if (message.find(http::field::content_type) == message.end())
      message.set(http::field::content_type, "application/json");
    message.body() = request.body;
  }
  message.prepare_payload();
  error_code failure;
  http::write(*connection, message, failure);
  return failure;
}

std::optional<Failure> HttpClient::Impl::read_body(http::response_parser<http::buffer_body>& parser,
                                                   const HttpOnData* on_data, HttpAnswer& answer) {
  const bool streaming = on_data != nullptr && answer.status / 100 == 2;
  if (streaming) connection->expires_at(Connection::Clock::time_point::max());
  std::array<char, kPieceBytes> piece;
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    error_code failure;
    http::read_some(*connection, buffer, parser, failure);
    if (failure == http::error::need_buffer) failure = {};
    const std::string_view data(piece.data(), piece.size() - parser.get().body().size);
    if (!data.empty() && streaming && !(*on_data)(data)) {
      connection = nullptr;  // The rest of the body is not wanted.
      return std::nullopt;
    }
    if (!streaming) answer.body.append(data);
    if (answer.body.size() > options.answer_bytes_max) return Failure{.connected = true, .too_large = true};
    if (failure) return Failure{.code = failure, .connected = true};
  }
  return std::nullopt;
}

std::optional<Failure> HttpClient::Impl::exchange(const HttpRequest& request, const HttpOnData* on_data,
                                                  HttpAnswer& answer) {
  answer = {};
  if (!connection) {
    if (const Result<Unit> connected = connect(); !connected)
      return Failure{.no_connection = connected.error()};
  }
  connection->expires_at(Connection::Clock::now() + std::chrono::nanoseconds(request.timeout.ns));
  error_code failure = send(request);
  if (failure == asio::error::operation_aborted) {
    connection = nullptr;
    return Failure{.no_connection =
                       Error{.code = ErrorCode::kUnavailable, .message = "the request was held back"}};
  }
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  parser.header_limit(kHeadBytesMax);
  if (request.method == "HEAD") parser.skip(true);
  // An answer may lie there even when the request could not be sent whole, such as "too large".
  const error_code sending = failure;
  http::read_header(*connection, buffer, parser, failure);
  if (failure) {
    connection = nullptr;
    return Failure{.code = sending ? sending : failure, .connected = true};
  }
  answer.status = static_cast<int>(parser.get().result_int());
  answer.retry_after = std::string(parser.get()[http::field::retry_after]);
  const std::string size(parser.get()["File-Size"]);
  if (!size.empty()) answer.file_size = std::strtoll(size.c_str(), nullptr, 10);
  if (on_head != nullptr && answer.status / 100 == 2) on_head(answer);
  const bool kept = parser.keep_alive() && !sending;
  const std::optional<Failure> broken = read_body(parser, on_data, answer);
  if (broken || !kept) connection = nullptr;
  return broken;
}

Result<HttpAnswer> HttpClient::Impl::perform(const HttpRequest& request, const HttpOnData* on_data) {
  const bool is_get = request.method == "GET";
  bool anything_streamed = false;
  const HttpOnData watched = [&](std::string_view data) {
    anything_streamed = true;
    return (*on_data)(data);
  };
  bool ever_connected = false;
  const std::size_t tries_max = std::max(kTriesMax, places.size());
  for (std::size_t tries = 1;; ++tries) {
    HttpAnswer answer;
    std::optional<Failure> failure = exchange(request, on_data == nullptr ? nullptr : &watched, answer);
    if (!failure) return answer;
    ever_connected = ever_connected || failure->connected;
    failure->connected = ever_connected;  // A request that was sent once may have been carried out.
    const bool broken = failure->connected && !failure->too_large && !failure->timed_out();
    if (!broken || !request.repeatable || anything_streamed || tries == tries_max) {
      return to_error(*failure, is_get, options.answer_bytes_max);
    }
    pass_over();
  }
}

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<HttpClient> HttpClient::create(HttpClientOptions options) {
  auto impl = std::make_unique<Impl>();
  if (const Result<Unit> added = impl->add_place(options.url); !added) return added.error();
  for (const std::string& url : options.other_urls) {
    if (const Result<Unit> added = impl->add_place(url); !added) return added.error();
  }
  if (impl->places.size() > 1)
    options.connect_timeout = std::min(options.connect_timeout, kConnectTimeoutOfSeveral);
  impl->options = std::move(options);
  return HttpClient(std::move(impl));
}

Result<HttpAnswer> HttpClient::request(const HttpRequest& request) {
  return impl_->perform(request, nullptr);
}

Result<HttpAnswer> HttpClient::stream(const HttpRequest& request, const HttpOnData& on_data,
                                      const HttpOnHead& on_head) {
  impl_->on_head = on_head;
  Result<HttpAnswer> answer = impl_->perform(request, &on_data);
  impl_->on_head = nullptr;
  return answer;
}

void HttpClient::pass_over() { impl_->pass_over(); }

const std::string& HttpClient::url() const { return impl_->urls; }

}  // namespace gpusched
