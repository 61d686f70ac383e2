#include "sign/api_key.h"

#include <sodium.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched::sign {
namespace {

constexpr std::string_view kMark = "gsk_";
constexpr std::string_view kLetters = "abcdefghijkmnpqrstuvwxyz23456789";  // None that look alike.
constexpr std::size_t kPrefixBytes = 12;
constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kSecretLetters = 2 * kSecretBytes;
constexpr std::size_t kHashBytes = crypto_generichash_BYTES;
static_assert(kLetters.size() == 32);
static_assert(kPrefixBytes >= limits::kKeyPrefixMin && kPrefixBytes <= limits::kKeyPrefixMax);
static_assert(kHashBytes == limits::kKeyHashBytes);
static_assert(kNodeTokenMark.size() == kMark.size());
static_assert(kApiKeyBytes == kMark.size() + kPrefixBytes + 1 + kSecretLetters);

void need_sodium() {
  static const bool ready = sodium_init() >= 0;
  CHECK(ready);
}

std::string new_prefix() {
  std::array<unsigned char, kPrefixBytes> drawn{};
  randombytes_buf(drawn.data(), drawn.size());
  std::string prefix;
  for (const unsigned char each : drawn) prefix += kLetters[each % kLetters.size()];
  return prefix;
}

std::string new_secret() {
  std::array<unsigned char, kSecretBytes> drawn{};
  randombytes_buf(drawn.data(), drawn.size());
  std::string secret(kSecretLetters + 1, '\0');
  sodium_bin2hex(secret.data(), secret.size(), drawn.data(), drawn.size());
  sodium_memzero(drawn.data(), drawn.size());
  secret.pop_back();
  return secret;
}

bool is_prefix_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_secret_letter(char c) { return (c >= 'a' && c <= 'f') || (c >= '0' && c <= '9'); }

}  // namespace

namespace {

std::optional<ApiKeyParts> parse(std::string_view text, std::string_view mark) {
  if (text.size() != kApiKeyBytes || !text.starts_with(mark)) return std::nullopt;
  text.remove_prefix(mark.size());
  const ApiKeyParts parts{.prefix = text.substr(0, kPrefixBytes), .secret = text.substr(kPrefixBytes + 1)};
  const bool fits = text[kPrefixBytes] == '.' && std::ranges::all_of(parts.prefix, is_prefix_letter) &&
                    std::ranges::all_of(parts.secret, is_secret_letter);
  return fits ? std::optional(parts) : std::nullopt;
}

NewApiKey make(std::string_view mark) {
  need_sodium();
  NewApiKey made{.prefix = new_prefix(), .text = {}, .hash = {}};
  const std::string secret = new_secret();
  made.hash = hash_api_secret(secret);
  made.text.append(mark).append(made.prefix).append(".").append(secret);
  return made;
}

}  // namespace

std::optional<ApiKeyParts> parse_api_key(std::string_view text) { return parse(text, kMark); }
std::optional<ApiKeyParts> parse_node_token(std::string_view text) { return parse(text, kNodeTokenMark); }
NewApiKey make_api_key() { return make(kMark); }
NewApiKey make_node_token() { return make(kNodeTokenMark); }

std::string hash_api_secret(std::string_view secret) {
  need_sodium();
  std::string hash(kHashBytes, '\0');
  const int failed =
      crypto_generichash(reinterpret_cast<unsigned char*>(hash.data()), hash.size(),
                         reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), nullptr, 0);
  CHECK(failed == 0);
  return hash;
}

bool is_api_secret(std::string_view secret, std::string_view hash) {
  const std::string shown = hash_api_secret(secret);
  return hash.size() == shown.size() && sodium_memcmp(shown.data(), hash.data(), hash.size()) == 0;
}

}  // namespace gpusched::sign
