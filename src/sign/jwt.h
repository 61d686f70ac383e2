#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sign/jwk.h"

/// JSON Web Tokens (RFC 7519) in the compact form, as strangers send them.
namespace gpusched::sign {

/// A longer token is refused before it is looked at.
inline constexpr std::size_t kJwtBytesMax = 8 << 10;
inline constexpr int64_t kJwtLeewayMaxSeconds = 60;

/// Required content of a token.
struct JwtExpectation {
  std::string issuer;
  std::string audience;        ///< The token's one, or among its.
  int64_t leeway_seconds = 0;  ///< Most that clocks may differ: kJwtLeewayMaxSeconds at most.

  bool operator==(const JwtExpectation&) const = default;
};

/// Claims of a token that somebody signed whose key we have. Immutable; cheap to copy.
class JwtClaims {
 public:
  const std::string& subject() const { return subject_; }
  const std::string& id() const { return id_; }       ///< `jti`; empty: none.
  int64_t expires_at() const { return expires_at_; }  ///< Seconds since 1970, as the following.
  std::optional<int64_t> issued_at() const { return issued_at_; }
  /// Whether the claim is that text, or a list with it. A path leads into claims that are objects.
  bool has(std::span<const std::string> path, std::string_view value) const;
  /// The text of a claim; nothing when it is no text.
  std::optional<std::string> text(std::span<const std::string> path) const;

 private:
  friend class JwtReader;
  std::string subject_, id_;
  int64_t expires_at_ = 0;
  std::optional<int64_t> issued_at_;
  std::shared_ptr<const void> members_;  ///< A JSON object.
};

enum class JwtFault : uint8_t {
  kNone,
  kMalformed,   ///< No token, or of another algorithm than its key's.
  kUnknownKey,  ///< Its form is right, and nobody has that `kid`.
  kBadSignature,
  kClaims,  ///< Signed by the key, and refused: its holder may know why.
};
struct JwtOutcome {
  JwtFault fault = JwtFault::kMalformed;
  std::string why;                  ///< For kClaims: "it expired 12 s ago".
  std::optional<JwtClaims> claims;  ///< With kNone alone.
};

/// `now`: seconds since 1970. Takes untrusted bytes.
JwtOutcome verify_jwt(std::string_view token, const JwtKeySet& keys, const JwtExpectation& expected,
                      int64_t now);

}  // namespace gpusched::sign
