#include "main/tokens/sign_in_provider.h"

#include <algorithm>

#include "client/login/id_token.h"
#include "log/log.h"

namespace gpusched {
namespace {

constexpr Duration kConnectMax = seconds(2), kAnswerMax = seconds(4);
constexpr auto kSameAgain = std::chrono::minutes(1);

/// A session here ends with its id token: what would outlive it is not asked for.
std::string scopes_text(const std::vector<std::string>& scopes) {
  std::string text = "openid";
  for (const std::string& scope : scopes) {
    if (scope != "openid" && scope != "offline_access") text += " " + scope;
  }
  return text;
}

}  // namespace

OidcProvider::Found OidcProvider::provider() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (now < due_) return found_;
  Result<login::Provider> read = login::Provider::discover(
      options_.issuer, login::ProviderReach{.ca_file = options_.ca_file,
                                            .private_hosts = &options_.private_hosts,
                                            .connect = kConnectMax,
                                            .answer = kAnswerMax});
  if (read.ok()) {
    found_ = std::make_shared<const login::Provider>(std::move(*read));
    due_ = Clock::now() + options_.document_lives;
    return found_;
  }
  Error why = read.error();
  if (why.code == ErrorCode::kPermissionDenied)
    why.message += "; an operator names the host in api.jwt_private_hosts if it is theirs";
  // It is nobody's word on who somebody is.
  found_ = Error{.code = ErrorCode::kUnavailable, .message = why.message};
  due_ = Clock::now() + options_.failure_lives;
  return found_;
}

Error OidcProvider::said(const Error& error) {
  const std::lock_guard lock(log_mutex_);
  const Clock::time_point now = Clock::now();
  if (error.message == told_ && now < told_at_ + kSameAgain) return error;
  told_ = error.message;
  told_at_ = now;
  log_event(LogLevel::kWarning, "scheduler", "sign_in_not_possible", {}, {{"why", error.message}});
  return error;
}

Result<std::string> OidcProvider::page_for(const std::string& state, const std::string& nonce,
                                           const std::string& verifier) {
  const Found found = provider();
  if (!found.ok()) return said(found.error());
  const std::string& page = (*found)->endpoints().authorization;
  if (page.empty())
    return said({.code = ErrorCode::kUnavailable,
                 .message = "the provider " + options_.issuer + " has no authorization_endpoint"});
  return page + (page.find('?') == std::string::npos ? "?" : "&") +
         login::form_text({{"response_type", "code"},
                           {"client_id", options_.client_id},
                           {"redirect_uri", options_.redirect_url},
                           {"scope", scopes_text(options_.scopes)},
                           {"state", state},
                           {"nonce", nonce},
                           {"code_challenge", login::code_challenge(verifier)},
                           {"code_challenge_method", "S256"}});
}

Result<std::string> OidcProvider::id_token_for(const std::string& code, const std::string& verifier,
                                               bool named_issuer) {
  const Found found = provider();
  if (!found.ok()) return said(found.error());
  if ((*found)->names_itself() && !named_issuer)
    return Error{
        .code = ErrorCode::kUnauthenticated,
        .message = "what this browser brought does not say whose answer it is (`iss`), which the provider " +
                   options_.issuer + " always says"};
  const Result<login::TokenAnswer> answer = (*found)->ask_token({{"grant_type", "authorization_code"},
                                                                 {"code", code},
                                                                 {"redirect_uri", options_.redirect_url},
                                                                 {"client_id", options_.client_id},
                                                                 {"code_verifier", verifier}},
                                                                options_.client_secret);
  if (!answer.ok()) return said({.code = ErrorCode::kUnavailable, .message = answer.error().message});
  if (answer->error == "invalid_grant")
    return Error{
        .code = ErrorCode::kUnauthenticated,
        .message = "the provider " + options_.issuer +
                   " does not take the code that this browser brought: it was used before, or is too old"};
  if (!answer->error.empty())
    return said({.code = ErrorCode::kUnavailable,
                 .message = "the provider " + options_.issuer + " gives no token: " + answer->error +
                            (answer->reason.empty() ? "" : ", " + answer->reason)});
  if (answer->id_token.empty())
    return said({.code = ErrorCode::kUnavailable,
                 .message = "the provider " + options_.issuer +
                            " gave no id token; let the client have the scope openid"});
  return answer->id_token;
}

}  // namespace gpusched
