#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

struct evp_pkey_st;

/// Keys that tokens are verified with, read from a JSON Web Key Set (RFC 7517).
namespace gpusched::sign {

/// All algorithms that there are for us. A key has one, and a token's header must name that one: it chooses
/// nothing.
enum class JwtAlgorithm : uint8_t {
  kEdDsa,  ///< Ed25519.
  kEs256,
  kRs256,  ///< 2048 to 8192 bits.
  kHs256,  ///< A secret of 32 bytes at least.
};
/// As in headers and keys: "EdDSA".
std::string_view to_string(JwtAlgorithm algorithm);
/// Nothing for any other spelling.
std::optional<JwtAlgorithm> jwt_algorithm_named(std::string_view name);

/// Bytes of a whole key set at most, and its keys.
inline constexpr std::size_t kJwksBytesMax = 64 << 10;
inline constexpr std::size_t kJwksKeysMax = 64;

/// One key. Immutable, so thread-safe.
class JwtKey {
 public:
  JwtAlgorithm algorithm() const { return algorithm_; }
  /// Whether the signature, as a token has it, is the key's over `text`. Both are untrusted bytes.
  bool is_signed(std::string_view text, std::string_view signature) const;

 private:
  friend class JwtKeyReader;
  JwtAlgorithm algorithm_ = JwtAlgorithm::kEdDsa;
  std::shared_ptr<evp_pkey_st> public_;  ///< Null for HS256.
  std::string secret_;
};

struct JwksOptions {
  /// Others' keys are passed over. Empty: all are taken.
  std::span<const JwtAlgorithm> algorithms = {};
  /// Keys of HS256 may be in it: whoever reads the set can make tokens.
  bool secrets_allowed = false;
};

/// Keys by their ids, which are compared and never looked into. Immutable, so thread-safe.
class JwtKeySet {
 public:
  /// Keys of another use, kind or algorithm, and those without a `kid`, are passed over. kInvalidArgument,
  /// with a sentence that names the key: the set is malformed or has no usable key, two keys have one id, or
  /// one is malformed, too weak, or private.
  static Result<std::shared_ptr<const JwtKeySet>> parse(std::string_view text, const JwksOptions& options);

  /// Null: there is none.
  const JwtKey* find(std::string_view kid) const;
  std::size_t size() const { return keys_.size(); }

 private:
  std::map<std::string, JwtKey, std::less<>> keys_;
};

}  // namespace gpusched::sign
