#include "main/tokens/jwt_service.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "client/login/provider.h"
#include "main/tokens/jwt_rules.h"
#include "main/tokens/sign_in_provider.h"

namespace gpusched {

namespace {

/// Null: nobody signs in with a browser.
Result<std::shared_ptr<const api::BrowserSignIn>> browser_of(const Config::Api& api,
                                                             const api::JwtRules& rules) {
  const api::BrowserLogin& browser = rules.browser;
  if (browser.redirect_url.empty()) return std::shared_ptr<const api::BrowserSignIn>();
  Result<api::BrowserPlace> place = api::browser_place_of(browser.redirect_url);
  if (!place.ok()) return place.error();
  if (!login::check_issuer(api.jwt_issuer))
    return Error{
        .code = ErrorCode::kInvalidArgument,
        .message = "api.jwt_issuer " + api.jwt_issuer +
                   " is no https URL, and so nobody can sign in there with a browser; remove `browser:` "
                   "from " +
                   api.jwt_rules_file + ", or name the provider's URL"};
  auto provider =
      std::make_shared<OidcProvider>(SignInProviderOptions{.issuer = api.jwt_issuer,
                                                           .client_id = browser.client_id,
                                                           .redirect_url = browser.redirect_url,
                                                           .client_secret = browser.client_secret,
                                                           .scopes = rules.login.scopes,
                                                           .ca_file = api.jwt_ca_file,
                                                           .private_hosts = api.jwt_private_hosts});
  return std::make_shared<const api::BrowserSignIn>(api::BrowserSignIn{.place = std::move(*place),
                                                                       .issuer = api.jwt_issuer,
                                                                       .client_id = browser.client_id,
                                                                       .redirect_url = browser.redirect_url,
                                                                       .provider = std::move(provider)});
}

}  // namespace

Result<JwtSetup> load_jwt(const Config& config) {
  const Config::Api& api = config.api;
  JwtSetup setup;
  if (api.jwt_issuer.empty()) return setup;
  Result<api::JwtRules> rules = load_jwt_rules(api.jwt_rules_file);
  if (!rules.ok()) return rules.error();
  setup.trust = std::make_shared<const api::JwtTrust>(
      api::JwtTrust{.expected = {.issuer = api.jwt_issuer,
                                 .audience = api.jwt_audience,
                                 .leeway_seconds = api.jwt_leeway_seconds},
                    .rules = std::move(*rules)});
  setup.source = {.keys = api.jwt_keys,
                  .algorithms = {},
                  .refresh = seconds(api.jwt_refresh_seconds),
                  .stale = hours(api.jwt_stale_hours),
                  .ca_file = api.jwt_ca_file,
                  .private_hosts = api.jwt_private_hosts};
  Result<std::shared_ptr<const api::BrowserSignIn>> browser = browser_of(api, setup.trust->rules);
  if (!browser.ok()) return browser.error();
  setup.browser = std::move(*browser);
  for (const std::string& name : api.jwt_algorithms) {
    const std::optional<sign::JwtAlgorithm> algorithm = sign::jwt_algorithm_named(name);
    if (!algorithm)
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "api.jwt_algorithms has " + name + "; there are EdDSA, ES256, RS256 and HS256"};
    setup.source.algorithms.push_back(*algorithm);
  }
  if (setup.source.is_url()) return setup;
  Result<JwtKeysPtr> keys = load_jwt_keys(setup.source);
  if (!keys.ok()) return keys.error();
  setup.keys = std::move(*keys);
  return setup;
}

JwtService::JwtService(JwtSetup setup) {
  verifier_->on_unknown_key([this] { unknown_key(); });
  use(std::move(setup));
}

void JwtService::use(JwtSetup setup) {
  const std::lock_guard lock(mutex_);
  const bool stays = source_ != nullptr && setup.trust != nullptr && setup.source.is_url() &&
                     same_place(source_->options(), setup.source);
  if (!stays) {
    source_.reset();  // Its last word comes before the new keys.
    verifier_->use_keys(setup.keys);
  }
  verifier_->use(setup.trust);
  sign_in_->use(setup.browser);
  if (stays) return source_->look_again();
  if (setup.trust == nullptr) return;
  source_ = std::make_unique<JwtSource>(
      std::move(setup.source), std::move(setup.keys),
      [verifier = verifier_](JwtKeysPtr keys) { verifier->use_keys(std::move(keys)); });
}

void JwtService::unknown_key() {
  // On a door's thread, which never waits for a configuration that is being exchanged.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && source_ != nullptr) source_->unknown_key();
}

void JwtService::stop() {
  const std::lock_guard lock(mutex_);
  source_.reset();
}

}  // namespace gpusched
