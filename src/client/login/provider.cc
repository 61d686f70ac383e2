#include "client/login/provider.h"

#include <algorithm>
#include <optional>

#include "base/net/base64.h"
#include "base/net/public_address.h"
#include "base/text.h"
#include "client/http_client.h"
#include "client/json.h"
#include "ops/local_peer.h"

namespace gpusched::login {
namespace {

constexpr std::size_t kUrlBytesMax = 2'048;
constexpr std::size_t kCodeBytesMax = 4'096;
constexpr std::size_t kUserCodeBytesMax = 64;
constexpr std::size_t kWordsBytesMax = 200;
constexpr std::size_t kFormMembersMax = 32;
constexpr Duration kLivesMax = minutes(30);
constexpr Duration kIntervalLongest = minutes(1);

/// Scheme, host and port, and what stands behind them.
struct Place {
  std::string origin, target;
};

std::optional<Place> place_of(const std::string& url) {
  const std::size_t scheme = url.find("://");
  const bool usable = scheme != std::string::npos && url.size() <= kUrlBytesMax &&
                      std::ranges::all_of(url, [](char c) { return c > ' ' && c < '\x7f' && c != '#'; });
  if (!usable || (!url.starts_with("https://") && !url.starts_with("http://"))) return std::nullopt;
  const std::size_t end = std::min(url.find_first_of("/?", scheme + 3), url.size());
  Place place{.origin = url.substr(0, end), .target = url.substr(end)};
  if (place.target.empty() || place.target.front() != '/') place.target.insert(0, "/");
  return place;
}

bool is_token(const std::string& text) {
  return text.size() <= kTokenBytesMax &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
}

/// The provider's words for a sentence of ours.
std::string words_of(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, kWordsBytesMax)) out += c >= ' ' && c < '\x7f' ? c : '?';
  return out;
}

/// A number of seconds that may be a text, as some send it.
int64_t seconds_of(const Json& value) {
  if (value.is_number()) return value.integer();
  const std::string text = value.text();
  const bool digits = !text.empty() && text.size() <= 9 &&
                      std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return digits ? std::stoll(text) : 0;
}

std::optional<int> digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::optional<std::string> form_word(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out += text[at] == '+' ? ' ' : text[at];
      continue;
    }
    const auto high = at + 2 < text.size() ? digit_of(text[at + 1]) : std::nullopt;
    const auto low = at + 2 < text.size() ? digit_of(text[at + 2]) : std::nullopt;
    if (!high || !low) return std::nullopt;
    out += static_cast<char>(*high * 16 + *low);
    at += 2;
  }
  return out;
}

}  // namespace

std::string form_text(const Form& form) {
  std::string out;
  for (const auto& [name, value] : form)
    out += (out.empty() ? "" : "&") + url_encoded(name) + "=" + url_encoded(value);
  return out;
}

Result<Form> parse_form(std::string_view text) {
  Form form;
  while (!text.empty()) {
    const std::string_view member = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(member.size() + 1, text.size()));
    if (member.empty()) continue;
    const std::size_t sign = member.find('=');
    const auto name = form_word(member.substr(0, sign));
    const auto value =
        sign == std::string_view::npos ? std::optional(std::string()) : form_word(member.substr(sign + 1));
    if (!name || !value || form.size() == kFormMembersMax)
      return Error{.code = ErrorCode::kInvalidArgument, .message = "it is malformed"};
    form.emplace_back(*name, *value);
  }
  return form;
}

bool is_private(const std::string& url) {
  const Result<HttpEndpoint> endpoint = parse_http_url(url);
  return endpoint && (endpoint->tls || !endpoint->unix_socket.empty() || ops::is_loopback(endpoint->host));
}

Result<Unit> check_issuer(const std::string& issuer) {
  const std::optional<Place> place = place_of(issuer);
  const bool plain = place && issuer.find('?') == std::string::npos && parse_http_url(place->origin).ok();
  if (!plain)
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "the issuer is no URL such as https://login.example.com; check --issuer"};
  if (!is_private(place->origin))
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "the issuer " + words_of(issuer) +
                            " is not reached over https, so that tokens could be read on the way; give its "
                            "https URL"};
  return Unit{};
}

Error Provider::trouble(ErrorCode code, const std::string& what) const {
  return {.code = code, .message = "the provider " + issuer_ + " " + what};
}

Provider::Provider(std::string issuer, const ProviderReach& reach)
    : issuer_(std::move(issuer)), ca_file_(reach.ca_file), connect_(reach.connect), answer_(reach.answer) {
  if (reach.private_hosts != nullptr) private_hosts_ = *reach.private_hosts;
}

Result<Provider::Answer> Provider::exchange(const std::string& url, const Form* form,
                                            const std::string& basic) const {
  const std::optional<Place> place = place_of(url);
  CHECK(place.has_value());  // Checked with the document, or the issuer.
  HttpClientOptions how{.url = place->origin,
                        .ca_file = ca_file_,
                        .connect_timeout = connect_,
                        .answer_bytes_max = kAnswerBytesMax};
  const Result<HttpEndpoint> endpoint = parse_http_url(place->origin);
  if (private_hosts_ && endpoint &&
      std::ranges::find(*private_hosts_, endpoint->host) == private_hosts_->end())
    how.address_allowed = is_public_address;
  Result<HttpClient> client = HttpClient::create(std::move(how));
  if (!client) return client.error();
  HttpRequest request{
      .method = form == nullptr ? "GET" : "POST", .target = place->target, .timeout = answer_};
  if (!basic.empty()) request.headers.emplace_back("Authorization", "Basic " + basic);
  if (form != nullptr) {
    request.body = form_text(*form);
    request.headers.emplace_back("Content-Type", "application/x-www-form-urlencoded");
  }
  const Result<HttpAnswer> answer = client->request(request);
  if (!answer) {
    const ErrorCode code = answer.error().code;
    if (code == ErrorCode::kPermissionDenied)
      return trouble(code,
                     "has an address that is not public, and was told nothing: " + answer.error().message);
    if (code == ErrorCode::kUnauthenticated || code == ErrorCode::kInvalidArgument)
      return trouble(code, "was told nothing: " + answer.error().message);
    return trouble(ErrorCode::kUnavailable, "gave no usable answer: " + answer.error().message);
  }
  if (answer->status / 100 == 3)
    return trouble(ErrorCode::kUnavailable, "leads elsewhere, which is not followed; check the issuer");
  return Answer{.status = answer->status, .body = answer->body};
}

Result<Unit> Provider::check_endpoint(const std::string& name, const std::string& url) const {
  if (url.empty()) return Unit{};
  const std::optional<Place> place = place_of(url);
  if (place && parse_http_url(place->origin).ok() && is_private(place->origin)) return Unit{};
  return trouble(ErrorCode::kInvalidArgument, "names a " + name + " that is no https URL");
}

Result<Provider> Provider::discover(const std::string& issuer, const std::string& ca_file) {
  return discover(issuer, ProviderReach{.ca_file = ca_file});
}

Result<Provider> Provider::discover(const std::string& issuer, const ProviderReach& reach) {
  if (const Result<Unit> usable = check_issuer(issuer); !usable) return usable.error();
  Provider provider(issuer, reach);
  std::string base = issuer;
  while (base.ends_with('/')) base.pop_back();
  const Result<Answer> answer = provider.exchange(base + "/.well-known/openid-configuration", nullptr);
  if (!answer) return answer.error();
  if (answer->status != 200)
    return provider.trouble(ErrorCode::kUnavailable,
                            "has no document at /.well-known/openid-configuration (HTTP status " +
                                std::to_string(answer->status) + "); check the issuer");
  const Result<Json> json = Json::parse(answer->body);
  if (!json || !json->is_object())
    return provider.trouble(ErrorCode::kUnavailable,
                            "answers without the JSON of a provider; check the issuer");
  // A document of another issuer would lead to tokens that the scheduler takes from nobody (OpenID Connect
  // Discovery 1.0, section 4.3).
  const std::string said = (*json)["issuer"].text();
  if (said != issuer)
    return provider.trouble(ErrorCode::kInvalidArgument,
                            "calls itself " + words_of(said) + "; give exactly its own name as the issuer");
  provider.endpoints_ = {.device_authorization = (*json)["device_authorization_endpoint"].text(),
                         .authorization = (*json)["authorization_endpoint"].text(),
                         .token = (*json)["token_endpoint"].text(),
                         .revocation = (*json)["revocation_endpoint"].text()};
  provider.names_itself_ = (*json)["authorization_response_iss_parameter_supported"].boolean();
  bool basic = false, in_body = false;
  for (const Json& method : (*json)["token_endpoint_auth_methods_supported"].items()) {
    basic = basic || method.text() == "client_secret_basic";
    in_body = in_body || method.text() == "client_secret_post";
  }
  provider.takes_secret_in_body_ = in_body && !basic;
  const Endpoints& all = provider.endpoints_;
  for (const auto& [name, url] :
       {std::pair("device_authorization_endpoint", all.device_authorization),
        std::pair("authorization_endpoint", all.authorization), std::pair("token_endpoint", all.token),
        std::pair("revocation_endpoint", all.revocation)}) {
    if (const Result<Unit> usable = provider.check_endpoint(name, url); !usable) return usable.error();
  }
  if (all.token.empty()) return provider.trouble(ErrorCode::kInvalidArgument, "has no token_endpoint");
  return provider;
}

Result<DeviceGrant> Provider::begin_device(const std::string& client_id, const std::string& scopes) const {
  if (endpoints_.device_authorization.empty())
    return trouble(ErrorCode::kInvalidArgument,
                   "has no device_authorization_endpoint; log in with gpu-cli login --browser");
  const Form form{{"client_id", client_id}, {"scope", scopes}};
  const Result<Answer> answer = exchange(endpoints_.device_authorization, &form);
  if (!answer) return answer.error();
  const Result<Json> json = Json::parse(answer->body);
  if (answer->status != 200 || !json || !json->is_object()) {
    const std::string why =
        json && json->is_object() ? (*json)["error"].text() + " " + (*json)["error_description"].text() : "";
    return trouble(ErrorCode::kUnavailable, "begins no login (HTTP status " + std::to_string(answer->status) +
                                                (why.size() > 1 ? ": " + words_of(why) : "") +
                                                "); check the client id " + words_of(client_id));
  }
  DeviceGrant grant{.device_code = (*json)["device_code"].text(),
                    .user_code = (*json)["user_code"].text(),
                    .verification_uri = (*json)["verification_uri"].text(),
                    .verification_uri_complete = (*json)["verification_uri_complete"].text()};
  if (grant.verification_uri.empty()) grant.verification_uri = (*json)["verification_url"].text();
  if (!place_of(grant.verification_uri_complete)) grant.verification_uri_complete.clear();
  const bool usable = !grant.device_code.empty() && grant.device_code.size() <= kCodeBytesMax &&
                      !grant.user_code.empty() && grant.user_code.size() <= kUserCodeBytesMax &&
                      !has_control_character(grant.user_code) && place_of(grant.verification_uri);
  if (!usable) return trouble(ErrorCode::kInvalidArgument, "begins a login without a usable code or page");
  const int64_t lives = seconds_of((*json)["expires_in"]);
  const int64_t interval = seconds_of((*json)["interval"]);
  if (lives > 0) grant.lives = seconds(std::min(lives, kLivesMax.ns / seconds(1).ns));
  if (interval > 0) grant.interval = seconds(std::min(interval, kIntervalLongest.ns / seconds(1).ns));
  return grant;
}

Result<TokenAnswer> Provider::ask_token(Form form, const std::string& secret) const {
  std::string basic;
  if (!secret.empty() && takes_secret_in_body_) form.emplace_back("client_secret", secret);
  if (!secret.empty() && !takes_secret_in_body_) {  // RFC 6749, section 2.3.1.
    const auto id = std::ranges::find(form, "client_id", &Form::value_type::first);
    CHECK(id != form.end());
    basic = base64_encoded(url_encoded(id->second) + ":" + url_encoded(secret));
  }
  const Result<Answer> answer = exchange(endpoints_.token, &form, basic);
  if (!answer) return answer.error();
  const Result<Json> json = Json::parse(answer->body);
  if (!json || !json->is_object())
    return trouble(ErrorCode::kUnavailable,
                   "gave no usable answer (HTTP status " + std::to_string(answer->status) + ")");
  TokenAnswer out{.error = words_of((*json)["error"].text()),
                  .reason = words_of((*json)["error_description"].text())};
  if (answer->status / 100 == 4 && !out.error.empty()) return out;
  if (answer->status != 200)
    return trouble(ErrorCode::kUnavailable,
                   "gave no usable answer (HTTP status " + std::to_string(answer->status) + ")");
  out.error.clear();
  out.access_token = (*json)["access_token"].text();
  out.id_token = (*json)["id_token"].text();
  out.refresh_token = (*json)["refresh_token"].text();
  out.expires_in = std::max<int64_t>(seconds_of((*json)["expires_in"]), 0);
  const bool usable = !out.access_token.empty() && is_token(out.access_token) && is_token(out.id_token) &&
                      is_token(out.refresh_token);
  if (!usable)
    return trouble(ErrorCode::kInvalidArgument, "gave a token that is none, or has more than 8 KiB");
  return out;
}

Result<Unit> Provider::revoke(const std::string& client_id, const std::string& token,
                              const std::string& hint) const {
  if (endpoints_.revocation.empty()) return Unit{};
  const Form form{{"token", token}, {"token_type_hint", hint}, {"client_id", client_id}};
  const Result<Answer> answer = exchange(endpoints_.revocation, &form);
  if (!answer) return answer.error();
  if (answer->status / 100 == 2) return Unit{};
  return trouble(ErrorCode::kUnavailable,
                 "did not revoke the login (HTTP status " + std::to_string(answer->status) + ")");
}

}  // namespace gpusched::login
