#pragma once

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/net/base64url.h"
#include "sign/jwk.h"

namespace gpusched::sign {

/// A provider of identities in a test: one key, with which it signs whatever it is told.
class TestTokenKey {
 public:
  explicit TestTokenKey(JwtAlgorithm algorithm, std::string kid = "k1", unsigned rsa_bits = 2'048)
      : algorithm_(algorithm), kid_(std::move(kid)), key_(made(algorithm, rsa_bits), EVP_PKEY_free) {}

  const std::string& kid() const { return kid_; }
  /// Its public part, as an entry of a key set; of HS256 the secret.
  std::string jwk(const std::string& more = "") const {
    const std::string head = "{\"kid\":\"" + kid_ + "\"," + more;
    switch (algorithm_) {
      case JwtAlgorithm::kEdDsa:
        return head + R"("kty":"OKP","crv":"Ed25519","x":")" + base64url_encoded(raw_public()) + "\"}";
      case JwtAlgorithm::kEs256:
        return head + R"("kty":"EC","crv":"P-256","x":")" + number(OSSL_PKEY_PARAM_EC_PUB_X, 32) +
               R"(","y":")" + number(OSSL_PKEY_PARAM_EC_PUB_Y, 32) + "\"}";
      case JwtAlgorithm::kRs256:
        return head + R"("kty":"RSA","n":")" + number(OSSL_PKEY_PARAM_RSA_N, 0) + R"(","e":")" +
               number(OSSL_PKEY_PARAM_RSA_E, 0) + "\"}";
      case JwtAlgorithm::kHs256:
        return head + R"("kty":"oct","k":")" + base64url_encoded(kSecret) + "\"}";
    }
    UNREACHABLE();
  }
  std::string set(const std::string& more = "") const { return "{\"keys\":[" + jwk(more) + "]}"; }

  /// The header that goes with the key.
  std::string header() const {
    return R"({"typ":"JWT","alg":")" + std::string(to_string(algorithm_)) + R"(","kid":")" + kid_ + "\"}";
  }
  std::string token(std::string_view claims) const { return token(header(), claims); }
  std::string token(std::string_view header, std::string_view claims) const {
    const std::string text = base64url_encoded(header) + "." + base64url_encoded(claims);
    return text + "." + base64url_encoded(signature(text));
  }
  std::string signature(std::string_view text) const {
    if (algorithm_ == JwtAlgorithm::kHs256) return hmac(kSecret, text);
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    const EVP_MD* const digest = algorithm_ == JwtAlgorithm::kEdDsa ? nullptr : EVP_sha256();
    CHECK(EVP_DigestSignInit(context.get(), nullptr, digest, nullptr, key_.get()) == 1);
    std::string out(1'024, '\0');
    std::size_t size = out.size();
    CHECK(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size,
                         reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1);
    out.resize(size);
    return algorithm_ == JwtAlgorithm::kEs256 ? raw_of(out) : out;
  }
  static std::string hmac(std::string_view secret, std::string_view text) {
    std::string out(32, '\0');
    unsigned size = 0;
    HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(out.data()), &size);
    return out;
  }

 private:
  static constexpr std::string_view kSecret = "a secret of more than thirty-two bytes, for a test";

  static EVP_PKEY* made(JwtAlgorithm algorithm, unsigned rsa_bits) {
    if (algorithm == JwtAlgorithm::kEdDsa) return EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
    if (algorithm == JwtAlgorithm::kEs256) return EVP_EC_gen("P-256");
    return algorithm == JwtAlgorithm::kRs256 ? EVP_RSA_gen(rsa_bits) : nullptr;
  }
  std::string raw_public() const {
    std::string out(32, '\0');
    std::size_t size = out.size();
    CHECK(EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(out.data()), &size) == 1);
    return out;
  }
  /// In base64url; of `size` bytes, or as many as it has.
  std::string number(const char* what, int size) const {
    BIGNUM* found = nullptr;
    CHECK(EVP_PKEY_get_bn_param(key_.get(), what, &found) == 1);
    const std::string out = bytes_of(found, size);
    BN_free(found);
    return base64url_encoded(out);
  }
  static std::string bytes_of(const BIGNUM* number, int size) {
    std::string out(static_cast<std::size_t>(size == 0 ? BN_num_bytes(number) : size), '\0');
    CHECK(BN_bn2binpad(number, reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size())) >=
          0);
    return out;
  }
  static std::string raw_of(const std::string& der) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
    ECDSA_SIG* const parsed = d2i_ECDSA_SIG(nullptr, &bytes, static_cast<long>(der.size()));
    CHECK(parsed != nullptr);
    const std::string out = bytes_of(ECDSA_SIG_get0_r(parsed), 32) + bytes_of(ECDSA_SIG_get0_s(parsed), 32);
    ECDSA_SIG_free(parsed);
    return out;
  }

  const JwtAlgorithm algorithm_;
  const std::string kid_;
  const std::shared_ptr<EVP_PKEY> key_;
};

/// The key of the one provider that most tests need, made once a test program.
inline const TestTokenKey& test_provider_key() {
  static const TestTokenKey kKey(JwtAlgorithm::kEs256);
  return kKey;
}

}  // namespace gpusched::sign
