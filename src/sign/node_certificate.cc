#include "sign/node_certificate.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/limits.h"
#include "sign/certificate_time.h"
#include "sign/keys/order_key.h"

namespace gpusched::sign {
namespace {

constexpr std::size_t kOrderKeysMax = 4;
constexpr const char* kPublicKeyBegins = "-----BEGIN PUBLIC KEY-----";

constexpr std::string_view kUriMark = "urn:gpusched:node:";
constexpr std::string_view kDigits = "0123456789abcdef";

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_';
}

std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_plain(text[i])) {
      out += text[i];
      continue;
    }
    if (text[i] != '%' || i + 2 >= text.size()) return std::nullopt;
    const std::size_t high = kDigits.find(text[i + 1]), low = kDigits.find(text[i + 2]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

Error bad_request(const char* why) {
  ERR_clear_error();
  return {ErrorCode::kInvalidArgument, std::string("the request for a certificate ") + why};
}

/// Named curves alone: a curve that a stranger describes is another one, whatever it looks like.
bool is_usable(EVP_PKEY* key) {
  if (EVP_PKEY_is_a(key, "ED25519") == 1) return true;
  if (EVP_PKEY_is_a(key, "EC") != 1) return false;
  char text[64] = {};
  std::size_t size = 0;
  if (EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_EC_ENCODING, text, sizeof text, &size) != 1 ||
      std::string_view(text) != "named_curve")
    return false;
  return EVP_PKEY_get_group_name(key, text, sizeof text, &size) == 1 &&
         std::string_view(text) == "prime256v1";
}

std::string public_key_hash(EVP_PKEY* key) {
  unsigned char* bytes = nullptr;
  const int size = i2d_PUBKEY(key, &bytes);
  CHECK(size > 0);
  std::string hash(limits::kPublicKeyHashBytes, '\0');
  unsigned int hash_size = 0;
  CHECK(EVP_Digest(bytes, static_cast<std::size_t>(size), reinterpret_cast<unsigned char*>(hash.data()),
                   &hash_size, EVP_sha256(), nullptr) == 1);
  CHECK(hash_size == hash.size());
  OPENSSL_free(bytes);
  return hash;
}

/// A passphrase is asked of nobody.
int no_passphrase_here(char*, int, int, void*) { return 0; }

struct FreePair {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(BIO* text) const { BIO_free(text); }
};

std::unique_ptr<EVP_PKEY, FreePair> read_private_key(const std::string& pem) {
  const std::unique_ptr<BIO, FreePair> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  CHECK(text != nullptr);
  std::unique_ptr<EVP_PKEY, FreePair> key(
      PEM_read_bio_PrivateKey(text.get(), nullptr, no_passphrase_here, nullptr));
  ERR_clear_error();
  return key;
}

std::unique_ptr<X509, FreePair> read_first_certificate(const std::string& pem) {
  const std::unique_ptr<BIO, FreePair> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  CHECK(text != nullptr);
  std::unique_ptr<X509, FreePair> certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

bool belong_together(const std::string& key_pem, const std::string& certificate_pem) {
  const auto key = read_private_key(key_pem);
  const auto certificate = read_first_certificate(certificate_pem);
  const bool same =
      key != nullptr && certificate != nullptr && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return same;
}

/// The public keys that stand behind the certificates, of 32 bytes each; empty: one is of another kind, or
/// there is none.
std::string read_order_keys(const std::string& pem) {
  const std::unique_ptr<BIO, FreePair> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  CHECK(text != nullptr);
  std::string keys;
  while (true) {
    const std::unique_ptr<EVP_PKEY, FreePair> key(PEM_read_bio_PUBKEY(text.get(), nullptr, nullptr, nullptr));
    ERR_clear_error();
    if (key == nullptr) return keys;
    std::string bytes(kOrderKeyBytes, '\0');
    std::size_t size = bytes.size();
    const bool right =
        EVP_PKEY_is_a(key.get(), "ED25519") == 1 &&
        EVP_PKEY_get_raw_public_key(key.get(), reinterpret_cast<unsigned char*>(bytes.data()), &size) == 1 &&
        size == bytes.size();
    ERR_clear_error();
    if (!right) return {};
    keys += bytes;
  }
}

bool are_order_keys(const std::string& keys) {
  return !keys.empty() && keys.size() % kOrderKeyBytes == 0 && keys.size() <= kOrderKeysMax * kOrderKeyBytes;
}

std::string order_key_pem(const std::string& bytes) {
  const std::unique_ptr<EVP_PKEY, FreePair> key(EVP_PKEY_new_raw_public_key(
      EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  const std::unique_ptr<BIO, FreePair> text(BIO_new(BIO_s_mem()));
  CHECK(key != nullptr && text != nullptr && PEM_write_bio_PUBKEY(text.get(), key.get()) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

std::string order_keys_pem(const std::string& keys) {
  std::string pem;
  for (std::size_t at = 0; at < keys.size(); at += kOrderKeyBytes)
    pem += order_key_pem(keys.substr(at, kOrderKeyBytes));
  return pem;
}

}  // namespace

std::string NodeClaim::uri() const {
  std::string out = std::string(kUriMark) + std::to_string(identity) + ":";
  for (const char c : node) {
    if (is_plain(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte / 16];
    out += kDigits[byte % 16];
  }
  return out;
}

std::optional<NodeClaim> NodeClaim::of_uri(std::string_view uri) {
  if (!uri.starts_with(kUriMark)) return std::nullopt;
  uri.remove_prefix(kUriMark.size());
  const std::size_t colon = uri.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  NodeClaim claim;
  const char* const end = uri.data() + colon;
  const auto [at, failed] = std::from_chars(uri.data(), end, claim.identity);
  if (failed != std::errc() || at != end || claim.identity == 0) return std::nullopt;
  const std::optional<std::string> name = unescaped(uri.substr(colon + 1));
  if (!name || name->empty() || name->size() > limits::kNameBytesMax) return std::nullopt;
  claim.node = *name;
  return claim;
}

void NodeRequest::Free::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }

Result<NodeRequest> NodeRequest::read(std::string_view der) {
  if (der.size() > kBytesMax) return bad_request("is too large");
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  X509_REQ* const request = d2i_X509_REQ(nullptr, &at, static_cast<long>(der.size()));
  const bool whole =
      request != nullptr && at == reinterpret_cast<const unsigned char*>(der.data()) + der.size();
  NodeRequest made;
  if (whole) made.key_.reset(X509_REQ_get_pubkey(request));
  // The kind first: no arithmetic of others' choice.
  const bool usable = made.key_ != nullptr && is_usable(made.key_.get());
  const bool is_signed = usable && X509_REQ_verify(request, made.key_.get()) == 1;
  X509_REQ_free(request);
  if (!whole) return bad_request("is none (PKCS#10, DER)");
  if (!usable) return bad_request("is for a key that is not on P-256 nor Ed25519");
  if (!is_signed) return bad_request("is not signed by its own key");
  made.key_hash_ = public_key_hash(made.key_.get());
  return made;
}

std::string make_node_key() {
  const std::unique_ptr<EVP_PKEY, FreePair> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<BIO, FreePair> text(BIO_new(BIO_s_mem()));
  CHECK(key != nullptr && text != nullptr);
  CHECK(PEM_write_bio_PrivateKey(text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

Result<std::string> make_node_request(const std::string& key_pem) {
  const auto key = read_private_key(key_pem);
  if (key == nullptr) return Error{ErrorCode::kInvalidArgument, "this is no private key in PEM format"};
  X509_REQ* const request = X509_REQ_new();
  CHECK(request != nullptr && X509_REQ_set_pubkey(request, key.get()) == 1);
  const EVP_MD* const digest = EVP_PKEY_is_a(key.get(), "ED25519") == 1 ? nullptr : EVP_sha256();
  CHECK(X509_REQ_sign(request, key.get(), digest) > 0);
  unsigned char* bytes = nullptr;
  const int size = i2d_X509_REQ(request, &bytes);
  CHECK(size > 0);
  std::string der(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  X509_REQ_free(request);
  return der;
}

Result<NodeFile> read_node_file(const std::string& path) {
  struct stat facts{};
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 "cannot read " + path + ": " + std::strerror(errno)};
  }
  std::string text(NodeRequest::kBytesMax * 4, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  const bool open_to_others = ::fstat(::fileno(file), &facts) != 0 || (facts.st_mode & 077) != 0;
  std::fclose(file);
  if (open_to_others)
    return Error{ErrorCode::kPermissionDenied,
                 path +
                     " can be read by others, who could pass for this node with it; run chmod 600 on it, and "
                     "join anew if it was like that for long"};
  const auto certificate = read_first_certificate(text);
  if (certificate == nullptr || !belong_together(text, text))
    return Error{ErrorCode::kInvalidArgument,
                 path + " does not hold a node's key and its certificate; join anew with a node token"};
  std::string order_keys = read_order_keys(text);
  if (order_keys.empty())
    return Error{ErrorCode::kInvalidArgument,
                 path +
                     " does not hold the key that the scheduler signs its orders with; join anew with a node "
                     "token"};
  return NodeFile{.begins_at = unix_second_of(X509_get0_notBefore(certificate.get())).value_or(0),
                  .expires_at = unix_second_of(X509_get0_notAfter(certificate.get())).value_or(0),
                  .order_keys = std::move(order_keys)};
}

Result<std::string> node_file_text(const std::string& key_pem, const std::string& certificates_pem,
                                   const std::string& order_keys) {
  if (!belong_together(key_pem, certificates_pem))
    return Error{ErrorCode::kInvalidArgument,
                 "the scheduler sent a certificate that is not for this node's key"};
  if (!are_order_keys(order_keys))
    return Error{ErrorCode::kInvalidArgument,
                 "the scheduler does not sign its orders, which nodes with certificates demand; upgrade it"};
  return key_pem + certificates_pem + order_keys_pem(order_keys);
}

Result<std::string> with_order_keys(const std::string& node_file, const std::string& order_keys) {
  if (!are_order_keys(order_keys))
    return Error{ErrorCode::kInvalidArgument, "the scheduler sent keys for its orders that are none"};
  return node_file.substr(0, node_file.find(kPublicKeyBegins)) + order_keys_pem(order_keys);
}

}  // namespace gpusched::sign
