#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "client/login/provider.h"

namespace gpusched::login {

/// Claims of a token. Nobody has checked its signature: the scheduler does that.
struct TokenClaims {
  std::string subject;
  int64_t issued_at = 0, expires_at = 0;  ///< Seconds since 1970; 0: not said.
};

/// Claims of a JSON Web Token; nothing: it is none.
std::optional<TokenClaims> peek_token(const std::string& token);

/// Checks an id token that came from the token endpoint itself, whose TLS stands for the signature (OpenID
/// Connect Core 1.0, section 3.1.3.7). `nonce`: what it must say; empty: nothing. `now`: seconds since 1970.
/// kUnauthenticated: it is another issuer's, for another client or another login, or has expired.
Result<TokenClaims> check_id_token(const std::string& token, const std::string& issuer,
                                   const std::string& client_id, const std::string& nonce, int64_t now);

/// 256 random bits in base64url: a state, a nonce, a code verifier.
std::string random_word();
/// Code challenge of a verifier by S256 (RFC 7636).
std::string code_challenge(const std::string& verifier);

}  // namespace gpusched::login
