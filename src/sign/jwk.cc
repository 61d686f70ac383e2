#include "sign/jwk.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/param_build.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>

#include "base/check.h"
#include "base/net/base64url.h"
#include "sign/strict_json.h"

namespace gpusched::sign {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepthMax = 8;
constexpr std::size_t kKidBytesMax = 256;
constexpr std::size_t kSecretBytesMin = 32, kSecretBytesMax = 1'024;
constexpr int kRsaBitsMin = 2'048, kRsaBitsMax = 8'192;
constexpr std::size_t kRsaExponentBytesMax = 8;
constexpr std::size_t kPointBytes = 32;  ///< P-256's coordinates, Ed25519's keys, ES256's r and s.
constexpr std::size_t kEdSignatureBytes = 64;

constexpr std::array<std::pair<JwtAlgorithm, std::string_view>, 4> kNames = {
    {{JwtAlgorithm::kEdDsa, "EdDSA"},
     {JwtAlgorithm::kEs256, "ES256"},
     {JwtAlgorithm::kRs256, "RS256"},
     {JwtAlgorithm::kHs256, "HS256"}}};

using PublicKey = std::shared_ptr<EVP_PKEY>;

struct FreeAll {
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(OSSL_PARAM_BLD* builder) const { OSSL_PARAM_BLD_free(builder); }
  void operator()(OSSL_PARAM* parameters) const { OSSL_PARAM_free(parameters); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  void operator()(ECDSA_SIG* signature) const { ECDSA_SIG_free(signature); }
};
template <typename T>
using Owned = std::unique_ptr<T, FreeAll>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Owned<BIGNUM> number_of(std::string_view bytes) {
  return Owned<BIGNUM>(BN_bin2bn(bytes_of(bytes), static_cast<int>(bytes.size()), nullptr));
}

/// Null: the parameters are no key of that kind.
PublicKey key_from(const char* kind, OSSL_PARAM_BLD* builder) {
  const Owned<OSSL_PARAM> parameters(OSSL_PARAM_BLD_to_param(builder));
  const Owned<EVP_PKEY_CTX> context(EVP_PKEY_CTX_new_from_name(nullptr, kind, nullptr));
  EVP_PKEY* made = nullptr;
  const bool worked = parameters && context && EVP_PKEY_fromdata_init(context.get()) == 1 &&
                      EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_PUBLIC_KEY, parameters.get()) == 1;
  ERR_clear_error();
  return worked ? PublicKey(made, EVP_PKEY_free) : nullptr;
}

PublicKey rsa_key(std::string_view modulus, std::string_view exponent) {
  const Owned<BIGNUM> n = number_of(modulus), e = number_of(exponent);
  const Owned<OSSL_PARAM_BLD> builder(OSSL_PARAM_BLD_new());
  const bool built = n && e && builder &&
                     OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) == 1 &&
                     OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) == 1;
  return built ? key_from("RSA", builder.get()) : nullptr;
}

PublicKey p256_key(std::string_view x, std::string_view y) {
  const std::string point = std::string(1, '\x04').append(x).append(y);
  const Owned<OSSL_PARAM_BLD> builder(OSSL_PARAM_BLD_new());
  const bool built =
      builder &&
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) == 1 &&
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size()) ==
          1;
  PublicKey key = built ? key_from("EC", builder.get()) : nullptr;
  if (key == nullptr) return nullptr;
  // A point that is not on the curve is no key.
  const Owned<EVP_PKEY_CTX> check(EVP_PKEY_CTX_new_from_pkey(nullptr, key.get(), nullptr));
  const bool valid = check && EVP_PKEY_public_check(check.get()) == 1;
  ERR_clear_error();
  return valid ? key : nullptr;
}

PublicKey ed25519_key(std::string_view bytes) {
  EVP_PKEY* const made =
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes_of(bytes), bytes.size());
  ERR_clear_error();
  return made == nullptr ? nullptr : PublicKey(made, EVP_PKEY_free);
}

/// r and s beside each other, as OpenSSL wants them: in DER. Empty: it cannot be.
std::string der_of(std::string_view raw) {
  Owned<BIGNUM> r = number_of(raw.substr(0, kPointBytes)), s = number_of(raw.substr(kPointBytes));
  const Owned<ECDSA_SIG> signature(ECDSA_SIG_new());
  if (!r || !s || !signature || ECDSA_SIG_set0(signature.get(), r.get(), s.get()) != 1) return {};
  static_cast<void>(r.release());  // They are the signature's now.
  static_cast<void>(s.release());
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(signature.get(), &der);
  std::string out = size > 0 ? std::string(reinterpret_cast<char*>(der), static_cast<std::size_t>(size)) : "";
  OPENSSL_free(der);
  return out;
}

bool verifies(EVP_PKEY* key, const EVP_MD* digest, std::string_view text, std::string_view signature) {
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  const bool worked = context && EVP_DigestVerifyInit(context.get(), nullptr, digest, nullptr, key) == 1 &&
                      EVP_DigestVerify(context.get(), bytes_of(signature), signature.size(), bytes_of(text),
                                       text.size()) == 1;
  ERR_clear_error();
  return worked;
}

bool is_hmac(std::string_view secret, std::string_view text, std::string_view signature) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> made{};
  unsigned size = 0;
  const bool worked = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), bytes_of(text),
                           text.size(), made.data(), &size) != nullptr;
  return worked && signature.size() == size && CRYPTO_memcmp(made.data(), signature.data(), size) == 0;
}

/// Nothing: there is no such member. A member of another type reads as an impossible text.
std::optional<std::string> text_member(const json::object& from, std::string_view name) {
  const json::value* const found = from.if_contains(json::string_view(name.data(), name.size()));
  if (found == nullptr) return std::nullopt;
  const json::string* const text = found->if_string();
  return text == nullptr ? std::string(1, '\0') : std::string(text->data(), text->size());
}

/// The bytes of a member; empty: there are none.
std::string bytes_member(const json::object& from, std::string_view name) {
  const std::optional<std::string> text = text_member(from, name);
  return text ? base64url_decoded(*text).value_or("") : std::string();
}

std::string without_zeros(std::string bytes) {
  return bytes.erase(0, std::min(bytes.find_first_not_of('\0'), bytes.size()));
}

}  // namespace

std::string_view to_string(JwtAlgorithm algorithm) {
  return std::ranges::find(kNames, algorithm, &std::pair<JwtAlgorithm, std::string_view>::first)->second;
}

std::optional<JwtAlgorithm> jwt_algorithm_named(std::string_view name) {
  const auto* const found =
      std::ranges::find(kNames, name, &std::pair<JwtAlgorithm, std::string_view>::second);
  return found == kNames.end() ? std::nullopt : std::optional(found->first);
}

bool JwtKey::is_signed(std::string_view text, std::string_view signature) const {
  switch (algorithm_) {
    case JwtAlgorithm::kEdDsa:
      return signature.size() == kEdSignatureBytes && verifies(public_.get(), nullptr, text, signature);
    case JwtAlgorithm::kEs256:
      return signature.size() == 2 * kPointBytes &&
             verifies(public_.get(), EVP_sha256(), text, der_of(signature));
    case JwtAlgorithm::kRs256:
      return std::cmp_equal(signature.size(), EVP_PKEY_get_size(public_.get())) &&
             verifies(public_.get(), EVP_sha256(), text, signature);
    case JwtAlgorithm::kHs256:
      return is_hmac(secret_, text, signature);
  }
  UNREACHABLE();
}

/// One set, key by key, with the first thing that is wrong.
class JwtKeyReader {
 public:
  explicit JwtKeyReader(const JwksOptions& options) : options_(options) {}

  /// Nothing: it is passed over, or `problem` says what is wrong with it.
  std::optional<JwtKey> read(const json::object& from);
  const std::string& problem() const { return problem_; }

 private:
  static std::optional<JwtAlgorithm> algorithm_of(const json::object& from);
  static bool is_for_signatures(const json::object& from);
  bool fail(const std::string& what) {
    problem_ = what;
    return false;
  }
  bool read_value(const json::object& from, JwtKey& key);
  bool read_rsa(const json::object& from, JwtKey& key);
  bool read_secret(const json::object& from, JwtKey& key);

  const JwksOptions& options_;
  std::string problem_;
};

/// By the key's kind alone; its `alg`, if any, must agree.
std::optional<JwtAlgorithm> JwtKeyReader::algorithm_of(const json::object& from) {
  const std::string kind = text_member(from, "kty").value_or("");
  const std::string curve = text_member(from, "crv").value_or("");
  std::optional<JwtAlgorithm> algorithm;
  if (kind == "OKP" && curve == "Ed25519") algorithm = JwtAlgorithm::kEdDsa;
  if (kind == "EC" && curve == "P-256") algorithm = JwtAlgorithm::kEs256;
  if (kind == "RSA") algorithm = JwtAlgorithm::kRs256;
  if (kind == "oct") algorithm = JwtAlgorithm::kHs256;
  const std::optional<std::string> named = text_member(from, "alg");
  if (algorithm && named && *named != to_string(*algorithm)) return std::nullopt;
  return algorithm;
}

bool JwtKeyReader::is_for_signatures(const json::object& from) {
  if (text_member(from, "use").value_or("sig") != "sig") return false;
  const json::value* const operations = from.if_contains("key_ops");
  if (operations == nullptr) return true;
  const json::array* const list = operations->if_array();
  return list != nullptr && std::ranges::find(*list, json::value("verify")) != list->end();
}

std::optional<JwtKey> JwtKeyReader::read(const json::object& from) {
  // First of all, whatever it is for: a private key that lies where public ones do is everybody's.
  for (const char* const name : {"d", "p", "q", "dp", "dq", "qi", "oth"}) {
    if (from.contains(name)) {
      fail(
          "is a private key: with it anybody can make tokens; replace it at its owner, and put only its "
          "public part here");
      return std::nullopt;
    }
  }
  const std::optional<JwtAlgorithm> algorithm = algorithm_of(from);
  const std::string kid = text_member(from, "kid").value_or("");
  if (!algorithm || kid.empty() || kid.size() > kKidBytesMax || !is_for_signatures(from)) return std::nullopt;
  const bool wanted = options_.algorithms.empty() ||
                      std::ranges::find(options_.algorithms, *algorithm) != options_.algorithms.end();
  if (!wanted) return std::nullopt;
  JwtKey key;
  key.algorithm_ = *algorithm;
  if (!read_value(from, key)) return std::nullopt;
  return key;
}

bool JwtKeyReader::read_value(const json::object& from, JwtKey& key) {
  if (key.algorithm_ == JwtAlgorithm::kRs256) return read_rsa(from, key);
  if (key.algorithm_ == JwtAlgorithm::kHs256) return read_secret(from, key);
  const bool is_p256 = key.algorithm_ == JwtAlgorithm::kEs256;
  const std::string x = bytes_member(from, "x"), y = is_p256 ? bytes_member(from, "y") : "";
  if (x.size() != kPointBytes || (is_p256 && y.size() != kPointBytes))
    return fail(is_p256 ? "has no x and y of 32 bytes in base64url" : "has no x of 32 bytes in base64url");
  key.public_ = is_p256 ? p256_key(x, y) : ed25519_key(x);
  return key.public_ != nullptr || fail("is no point of its curve");
}

bool JwtKeyReader::read_rsa(const json::object& from, JwtKey& key) {
  const std::string n = without_zeros(bytes_member(from, "n")), e = without_zeros(bytes_member(from, "e"));
  if (n.empty() || e.empty()) return fail("has no n and e in base64url");
  const int bits = n.size() > kRsaBitsMax ? kRsaBitsMax + 1 : BN_num_bits(number_of(n).get());
  if (bits < kRsaBitsMin || bits > kRsaBitsMax)
    return fail("has " + std::to_string(bits) + " bits; RS256 takes " + std::to_string(kRsaBitsMin) + " to " +
                std::to_string(kRsaBitsMax));
  const bool is_odd = (n.back() & 1) != 0 && (e.back() & 1) != 0;
  if (!is_odd || e.size() > kRsaExponentBytesMax || e == std::string(1, '\1'))
    return fail("has an n or e that no RSA key has");
  key.public_ = rsa_key(n, e);
  return key.public_ != nullptr || fail("is no RSA key");
}

bool JwtKeyReader::read_secret(const json::object& from, JwtKey& key) {
  if (!options_.secrets_allowed)
    return fail(
        "is a secret (kty oct), with which anybody can make tokens; it may be in a file that only the "
        "scheduler's "
        "user can read");
  key.secret_ = bytes_member(from, "k");
  if (key.secret_.size() < kSecretBytesMin || key.secret_.size() > kSecretBytesMax)
    return fail("has no k of 32 to 1024 bytes in base64url");
  return true;
}

Result<std::shared_ptr<const JwtKeySet>> JwtKeySet::parse(std::string_view text, const JwksOptions& options) {
  const auto refused = [](const std::string& why) {
    return Error{.code = ErrorCode::kInvalidArgument, .message = why};
  };
  if (text.size() > kJwksBytesMax) return refused("the key set is larger than 64 KiB");
  const std::optional<json::object> whole = parse_strict_object(text, kDepthMax);
  const json::value* const list = whole ? whole->if_contains("keys") : nullptr;
  const json::array* const entries = list == nullptr ? nullptr : list->if_array();
  if (entries == nullptr)
    return refused("it is no JSON Web Key Set: an object with the list `keys`, and no member twice");
  if (entries->size() > kJwksKeysMax) return refused("the key set has more than 64 keys");
  auto set = std::make_shared<JwtKeySet>();
  for (std::size_t i = 0; i < entries->size(); ++i) {
    const json::object* const entry = (*entries)[i].if_object();
    const std::string which = "key " + std::to_string(i + 1) + " of the set ";
    if (entry == nullptr) return refused(which + "is no object");
    JwtKeyReader reader(options);
    std::optional<JwtKey> key = reader.read(*entry);
    if (!reader.problem().empty()) return refused(which + reader.problem());
    if (!key) continue;
    if (!set->keys_.emplace(*text_member(*entry, "kid"), std::move(*key)).second)
      return refused(which + "has the kid of another one");
  }
  if (set->keys_.empty())
    return refused(
        "the key set has no usable key: one for EdDSA (Ed25519), ES256, RS256 or HS256, of an algorithm that "
        "is "
        "allowed here, and with a kid");
  return std::shared_ptr<const JwtKeySet>(std::move(set));
}

const JwtKey* JwtKeySet::find(std::string_view kid) const {
  const auto found = keys_.find(kid);
  return found == keys_.end() ? nullptr : &found->second;
}

}  // namespace gpusched::sign
