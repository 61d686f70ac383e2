#pragma once

#include <optional>
#include <string>
#include <string_view>

/// API keys, as their holders have them: `gsk_PREFIX.SECRET`. The prefix finds a key and is no secret. The
/// scheduler keeps only a hash of the secret: it is 256 random bits, which nobody guesses, so a fast hash is
/// enough.
namespace gpusched::sign {

/// Bytes of a whole key: no text of another length is one.
inline constexpr std::size_t kApiKeyBytes = 4 + 12 + 1 + 64;

/// Views of a key's text.
struct ApiKeyParts {
  std::string_view prefix, secret;
};
/// Nothing: the text has not the form of a key. It takes untrusted bytes, and looks at no more of them than a
/// key has.
std::optional<ApiKeyParts> parse_api_key(std::string_view text);

/// A key that was just made: its text is for its holder alone.
struct NewApiKey {
  std::string prefix, text, hash;
};
NewApiKey make_api_key();

/// Node tokens are of the same form, `gsn_PREFIX.SECRET`, so that neither is ever taken for the other.
inline constexpr std::string_view kNodeTokenMark = "gsn_";
std::optional<ApiKeyParts> parse_node_token(std::string_view text);
NewApiKey make_node_token();

/// BLAKE2b-256 of the secret.
std::string hash_api_secret(std::string_view secret);
/// Whether it is the secret of that hash, in a time that does not depend on what is in either.
bool is_api_secret(std::string_view secret, std::string_view hash);

}  // namespace gpusched::sign
