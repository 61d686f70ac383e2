#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"

/// How a person gets a token of a provider of identities (OpenID Connect, OAuth 2.0). The provider's answers
/// are a stranger's bytes: bounded, and never followed to another place.
namespace gpusched::login {

/// Bytes of one answer at most.
inline constexpr std::size_t kAnswerBytesMax = 64 << 10;
/// A longer token is none: the scheduler takes no more.
inline constexpr std::size_t kTokenBytesMax = 8 << 10;

using Form = std::vector<std::pair<std::string, std::string>>;
/// As application/x-www-form-urlencoded, and as a query has it.
std::string form_text(const Form& form);
/// The members of a query. Nothing is thrown away: a name that is there twice is twice in it.
/// kInvalidArgument: a percent escape is malformed, or there are more than 32.
Result<Form> parse_form(std::string_view text);

/// Whether nobody on the way can read or change what is said: https, a Unix socket, this machine's loopback.
bool is_private(const std::string& url);

/// kInvalidArgument: it is no https URL, nor one of this machine's loopback, or has a query or fragment.
Result<Unit> check_issuer(const std::string& issuer);

/// Places that the provider's document names; empty: it has none.
struct Endpoints {
  std::string device_authorization, authorization, token, revocation;
};

/// RFC 8628, section 3.2, within bounds.
struct DeviceGrant {
  std::string device_code;  ///< Secret.
  std::string user_code;
  std::string verification_uri;  ///< An http or https URL.
  std::string verification_uri_complete;
  Duration lives = minutes(5);
  Duration interval = seconds(5);
};

/// Answer of the token endpoint: tokens, or why there are none.
struct TokenAnswer {
  std::string error;   ///< A code such as "access_denied"; empty: there are tokens.
  std::string reason;  ///< The provider's own words.
  std::string access_token, id_token, refresh_token;
  int64_t expires_in = 0;  ///< Life of the access token, in seconds; 0: unknown.
};

/// How a provider is reached.
struct ProviderReach {
  std::string ca_file = {};  ///< PEM, whom https trusts; empty: the machine's authorities.
  /// Hosts that may have an address of this machine or of a private network; null: any may. Nothing is sent
  /// to another host with such an address.
  const std::vector<std::string>* private_hosts = nullptr;
  Duration connect = seconds(5), answer = seconds(10);  ///< For so long each is waited for.
};

/// One provider. Not thread-safe. Errors name it, and never a token: kUnavailable (it does not answer, or not
/// as a provider does), kUnauthenticated (its certificate), kInvalidArgument (what it says is wrong).
class Provider {
 public:
  /// Reads its document. `ca_file`: PEM, whom https trusts; empty: the machine's authorities.
  static Result<Provider> discover(const std::string& issuer, const std::string& ca_file);

  /// The same. `reach.private_hosts` is not kept.
  static Result<Provider> discover(const std::string& issuer, const ProviderReach& reach);

  const std::string& issuer() const { return issuer_; }
  const Endpoints& endpoints() const { return endpoints_; }

  Result<DeviceGrant> begin_device(const std::string& client_id, const std::string& scopes) const;
  /// `secret`: of a client that has one; it goes as the provider says that it takes it. Empty: a public
  /// client.
  Result<TokenAnswer> ask_token(Form form, const std::string& secret = {}) const;
  /// Whether its answers to browsers always say whose they are (RFC 9207).
  bool names_itself() const { return names_itself_; }
  /// RFC 7009. Without such an endpoint there is nothing to do.
  Result<Unit> revoke(const std::string& client_id, const std::string& token, const std::string& hint) const;

 private:
  Provider(std::string issuer, const ProviderReach& reach);
  struct Answer {
    int status = 0;
    std::string body;
  };
  Result<Answer> exchange(const std::string& url, const Form* form, const std::string& basic = {}) const;
  Result<Unit> check_endpoint(const std::string& name, const std::string& url) const;
  Error trouble(ErrorCode code, const std::string& what) const;

  std::string issuer_, ca_file_;
  std::optional<std::vector<std::string>> private_hosts_;  ///< None: any host is.
  Duration connect_, answer_;
  Endpoints endpoints_;
  bool names_itself_ = false, takes_secret_in_body_ = false;
};

}  // namespace gpusched::login
