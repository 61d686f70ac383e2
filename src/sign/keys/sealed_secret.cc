#include "sign/keys/sealed_secret.h"

#include <array>

#include "base/net/base64.h"
#include "sign/keys/sodium.h"

namespace gpusched::sign {
namespace {

/// Also the first word of the text, and authenticated with it.
constexpr std::string_view kSealMark = "gpusched-sealed-1";
constexpr std::size_t kSealNonceBytes = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr std::size_t kSealTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;

const unsigned char* seal_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

/// The key of a passphrase; wiped at its end.
class SealKey {
 public:
  SealKey(std::string_view passphrase, std::string_view salt) {
    CHECK(salt.size() == crypto_pwhash_SALTBYTES);
    made_ = crypto_pwhash(bytes_.data(), bytes_.size(), passphrase.data(), passphrase.size(),
                          seal_bytes(salt), crypto_pwhash_OPSLIMIT_MODERATE, crypto_pwhash_MEMLIMIT_MODERATE,
                          crypto_pwhash_ALG_ARGON2ID13) == 0;
  }
  SealKey(const SealKey&) = delete;
  SealKey& operator=(const SealKey&) = delete;
  ~SealKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

  bool made() const { return made_; }
  const unsigned char* data() const { return bytes_.data(); }

 private:
  std::array<unsigned char, crypto_aead_xchacha20poly1305_ietf_KEYBYTES> bytes_{};
  bool made_ = false;
};

std::string seal_salt(std::size_t count) {
  std::string text(count, '\0');
  randombytes_buf(text.data(), text.size());
  return text;
}

}  // namespace

std::optional<std::string> sealed_secret(std::string_view secret, std::string_view passphrase) {
  init_sodium();
  const std::string salt = seal_salt(crypto_pwhash_SALTBYTES), nonce = seal_salt(kSealNonceBytes);
  const SealKey key(passphrase, salt);
  if (!key.made()) return std::nullopt;
  std::string box(secret.size() + kSealTagBytes, '\0');
  unsigned long long size = 0;
  crypto_aead_xchacha20poly1305_ietf_encrypt(reinterpret_cast<unsigned char*>(box.data()), &size,
                                             seal_bytes(secret), secret.size(), seal_bytes(kSealMark),
                                             kSealMark.size(), nullptr, seal_bytes(nonce), key.data());
  CHECK(size == box.size());
  return std::string(kSealMark) + " " + base64_encoded(salt + nonce + box);
}

bool is_sealed_secret(std::string_view text) { return text.starts_with(kSealMark); }

Result<std::string> open_sealed_secret(std::string_view text, std::string_view passphrase) {
  init_sodium();
  const Error corrupt{.code = ErrorCode::kCorrupt, .message = "it is no sealed secret"};
  if (!is_sealed_secret(text) || text.size() <= kSealMark.size() || text[kSealMark.size()] != ' ')
    return corrupt;
  text.remove_prefix(kSealMark.size() + 1);
  const std::optional<std::string> whole = base64_decoded(text);
  constexpr std::size_t kHead = crypto_pwhash_SALTBYTES + kSealNonceBytes;
  if (!whole || whole->size() < kHead + kSealTagBytes) return corrupt;
  const std::string_view bytes = *whole;
  const SealKey key(passphrase, bytes.substr(0, crypto_pwhash_SALTBYTES));
  if (!key.made())
    return Error{.code = ErrorCode::kUnavailable, .message = "there is no memory to open a sealed secret"};
  const std::string_view box = bytes.substr(kHead);
  std::string secret(box.size() - kSealTagBytes, '\0');
  unsigned long long size = 0;
  const int failed = crypto_aead_xchacha20poly1305_ietf_decrypt(
      reinterpret_cast<unsigned char*>(secret.data()), &size, nullptr, seal_bytes(box), box.size(),
      seal_bytes(kSealMark), kSealMark.size(),
      seal_bytes(bytes.substr(crypto_pwhash_SALTBYTES, kSealNonceBytes)), key.data());
  if (failed != 0)
    return Error{.code = ErrorCode::kUnauthenticated,
                 .message = "the passphrase is another one, or the sealed secret was changed"};
  return secret;
}

}  // namespace gpusched::sign
