#include "client/login/id_token.h"

#include <openssl/sha.h>
#include <sys/random.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/net/base64url.h"
#include "client/json.h"

namespace gpusched::login {
namespace {

constexpr int64_t kClocksDiffer = 300;

std::optional<Json> payload_of(const std::string& token) {
  const std::size_t first = token.find('.');
  const std::size_t second = first == std::string::npos ? first : token.find('.', first + 1);
  if (second == std::string::npos || token.size() > kTokenBytesMax) return std::nullopt;
  const auto bytes = base64url_decoded(std::string_view(token).substr(first + 1, second - first - 1));
  if (!bytes) return std::nullopt;
  const Result<Json> json = Json::parse(*bytes);
  return json && json->is_object() ? std::optional(*json) : std::nullopt;
}

TokenClaims claims_of(const Json& payload) {
  return {.subject = payload["sub"].text(),
          .issued_at = payload["iat"].integer(),
          .expires_at = payload["exp"].integer()};
}

bool is_for(const Json& payload, const std::string& client_id) {
  const Json audience = payload["aud"];
  if (audience.is_string()) return audience.text() == client_id;
  const std::vector<Json> all = audience.items();
  const bool named = std::ranges::any_of(all, [&](const Json& one) { return one.text() == client_id; });
  return named && (all.size() == 1 || payload["azp"].is_null() || payload["azp"].text() == client_id);
}

}  // namespace

std::optional<TokenClaims> peek_token(const std::string& token) {
  const std::optional<Json> payload = payload_of(token);
  if (!payload) return std::nullopt;
  return claims_of(*payload);
}

Result<TokenClaims> check_id_token(const std::string& token, const std::string& issuer,
                                   const std::string& client_id, const std::string& nonce, int64_t now) {
  const auto refused = [&](const std::string& why) {
    return Error{.code = ErrorCode::kUnauthenticated,
                 .message = "the id token of the provider " + issuer + " is refused: " + why};
  };
  const std::optional<Json> payload = payload_of(token);
  if (!payload) return refused("it is no JSON Web Token");
  if ((*payload)["iss"].text() != issuer) return refused("it is another issuer's");
  if (!is_for(*payload, client_id)) return refused("it is for another client");
  if (!nonce.empty() && (*payload)["nonce"].text() != nonce)
    return refused("it belongs to another login (its nonce is not the one that was sent)");
  TokenClaims claims = claims_of(*payload);
  if (claims.subject.empty()) return refused("it names nobody");
  if (claims.expires_at + kClocksDiffer <= now) return refused("it has expired; check this machine's clock");
  return claims;
}

std::string random_word() {
  std::array<char, 32> bytes;
  CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return base64url_encoded({bytes.data(), bytes.size()});
}

std::string code_challenge(const std::string& verifier) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(verifier.data()), verifier.size(), digest.data());
  return base64url_encoded({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

}  // namespace gpusched::login
