#include "api/http/http_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <functional>

#include "api/http/request_rules.h"
#include "base/check.h"

namespace gpusched::api {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

HttpMethod method_of(http::verb verb) {
  switch (verb) {
    case http::verb::get:
      return HttpMethod::kGet;
    case http::verb::head:
      return HttpMethod::kHead;
    case http::verb::post:
      return HttpMethod::kPost;
    case http::verb::put:
      return HttpMethod::kPut;
    case http::verb::delete_:
      return HttpMethod::kDelete;
    case http::verb::patch:
      return HttpMethod::kPatch;
    case http::verb::options:
      return HttpMethod::kOptions;
    default:
      return HttpMethod::kOther;
  }
}

class Parser final : public http::basic_parser<true> {
 public:
  Parser(uint32_t header_bytes_max, uint64_t body_bytes_max, const HttpStreams* streams) : streams_(streams) {
    header_limit(header_bytes_max);
    body_limit(body_bytes_max);
    eager(true);
  }
  HttpRequest request;
  bool streams_body = false;
  bool expects_continue = false;
  bool version_1_0 = false;
  std::string_view input;      ///< Bytes that are being parsed.
  std::string_view violation;  ///< Why the request is refused, where this class does it. In static storage.

 private:
  void on_request_impl(http::verb method, boost::beast::string_view, boost::beast::string_view target,
                       int version, error_code&) override {
    version_1_0 = version < 11;
    target_.assign(view(target));
    request.method = method_of(method);
    std::string_view rest = view(target);
    const std::optional<AbsoluteTarget> absolute = rest.starts_with('/') ? std::nullopt : read_absolute(rest);
    if (absolute) rest = absolute->rest;
    rest = rest.substr(0, rest.find('#'));
    const std::size_t mark = rest.find('?');
    request.path.assign(rest.substr(0, mark));
    if (request.path.empty()) request.path = "/";
    if (mark != std::string_view::npos) request.query.assign(rest.substr(mark + 1));
    streams_body = streams_ != nullptr && *streams_ != nullptr && (*streams_)(request.method, request.path);
    if (streams_body) body_limit(boost::none);
  }
  void on_response_impl(int, boost::beast::string_view, int, error_code&) override { UNREACHABLE(); }
  void on_field_impl(http::field field, boost::beast::string_view name, boost::beast::string_view value,
                     error_code& error) override {
    if (header_done_) return;  // Behind the body: nobody waits for such fields, and none counts.
    check_field(field, view(name), view(value), error);
    if (error) return;
    const auto keep_first = [&](std::string& out) {
      if (out.empty()) out.assign(view(value));
    };
    switch (field) {
      case http::field::host:
        request.host_count += 1;
        return keep_first(request.host);
      case http::field::authorization:
        return keep_first(request.authorization);
      case http::field::cookie:
        if (!request.cookie.empty()) request.cookie += "; ";
        request.cookie += view(value);
        return;
      case http::field::origin:
        return keep_first(request.origin);
      case http::field::sec_fetch_site:
        return keep_first(request.fetch_site);
      case http::field::accept:
        return keep_first(request.accept);
      case http::field::content_type:
        return keep_first(request.content_type);
      case http::field::upgrade:
        request.wants_websocket = boost::beast::iequals(value, "websocket");
        return;
      case http::field::sec_websocket_key:
        return keep_first(request.websocket_key);
      case http::field::sec_websocket_version:
        return keep_first(request.websocket_version);
      case http::field::access_control_request_method:
        return keep_first(request.cors_method);
      case http::field::access_control_request_headers:
        return keep_first(request.cors_headers);
      case http::field::expect:
        expects_continue = boost::beast::iequals(value, "100-continue");
        return;
      case http::field::unknown:
        if (boost::beast::iequals(name, "Idempotency-Key")) keep_first(request.idempotency_key);
        if (boost::beast::iequals(name, "X-Requested-By")) keep_first(request.requested_by);
        if (boost::beast::iequals(name, "X-Request-Id")) keep_first(request.request_id);
        if (boost::beast::iequals(name, "traceparent")) keep_first(request.traceparent);
        if (boost::beast::iequals(name, "Last-Event-ID")) keep_first(request.last_event_id);
        return;
      default:
        return;
    }
  }
  /// A field that goes on in the next line, or a coding that is unknown here, is read differently by programs
  /// in between: one of them would see other requests than we do (RFC 9112, 5.2 and 6.3).
  void check_field(http::field field, std::string_view name, std::string_view value, error_code& error) {
    // Beast joins the lines elsewhere, or skips those that are empty.
    const bool joined = !value.empty() && !(std::less_equal<>()(input.data(), value.data()) &&
                                            std::less<>()(value.data(), input.data() + input.size()));
    const char* const name_end = name.data() + name.size();
    const bool folded = joined || (!value.empty() && std::find(name_end, value.data(), '\n') != value.data());
    if (folded) violation = "a header field goes on in the next line; send each in one line";
    if (field == http::field::transfer_encoding) {
      const bool known = !folded && !version_1_0 && boost::beast::iequals(value, "chunked");
      if (!known) violation = "Transfer-Encoding is known as \"chunked\" only, alone and in HTTP/1.1";
    }
    if (!violation.empty()) error = http::error::bad_transfer_encoding;
  }
  void on_header_impl(error_code& error) override {
    header_done_ = true;
    violation = violation_of({.version_1_0 = version_1_0,
                              .host_count = request.host_count,
                              .host = request.host,
                              .target = target_,
                              .is_options = request.method == HttpMethod::kOptions});
    if (!violation.empty()) error = http::error::bad_target;
    const std::optional<AbsoluteTarget> absolute = read_absolute(target_);
    if (!absolute || request.host_count > 0) return;
    request.host_count = 1;  // The gate looks whom it names.
    request.host.assign(absolute->authority);
  }
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(boost::beast::string_view body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(uint64_t, boost::beast::string_view, error_code&) override {}
  std::size_t on_chunk_body_impl(uint64_t, boost::beast::string_view body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(error_code&) override {}

  const HttpStreams* streams_;
  std::string target_;  ///< As it came.
  bool header_done_ = false;
};

}  // namespace

struct HttpParser::Impl {
  uint32_t header_bytes_max;
  uint64_t body_bytes_max;
  const HttpStreams* streams;
  std::optional<Parser> parser;
  error_code error;
};

HttpParser::HttpParser(uint32_t header_bytes_max, uint64_t body_bytes_max, const HttpStreams* streams)
    : impl_(new Impl{header_bytes_max, body_bytes_max, streams, std::nullopt, {}}) {
  reset();
}
HttpParser::~HttpParser() = default;
HttpParser::HttpParser(HttpParser&&) noexcept = default;

void HttpParser::reset() {
  impl_->parser.emplace(impl_->header_bytes_max, impl_->body_bytes_max, impl_->streams);
  impl_->error = {};
}

HttpParser::Status HttpParser::put(std::string_view bytes, std::size_t& used) {
  CHECK(!impl_->parser->is_done());
  CHECK(!bytes.empty());
  error_code error;
  impl_->parser->input = bytes;
  used += impl_->parser->put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (error == http::error::header_limit) return Status::kHeaderTooLarge;
  if (error == http::error::body_limit) return Status::kBodyTooLarge;
  if (error && error != http::error::need_more) {
    impl_->error = error;
    return Status::kBad;
  }
  return impl_->parser->is_done() ? Status::kDone : Status::kNeedMore;
}

bool HttpParser::header_done() const { return impl_->parser->is_header_done(); }
bool HttpParser::streams_body() const { return impl_->parser->streams_body; }
bool HttpParser::keep_alive() const { return impl_->parser->keep_alive(); }
bool HttpParser::version_1_0() const { return impl_->parser->version_1_0; }
bool HttpParser::expects_continue() const { return impl_->parser->expects_continue; }
std::optional<uint64_t> HttpParser::content_length() const {
  const auto length = impl_->parser->content_length();
  return length ? std::optional<uint64_t>(*length) : std::nullopt;
}
std::string HttpParser::error() const {
  const std::string_view violation = impl_->parser->violation;
  return violation.empty() ? impl_->error.message() : std::string(violation);
}
HttpRequest& HttpParser::request() { return impl_->parser->request; }

}  // namespace gpusched::api
