#include "sign/keys/order_key.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sodium.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "sign/keys/private_file.h"
#include "sign/keys/sodium.h"

namespace gpusched::sign {
namespace {

constexpr std::string_view kOrderMark = "gpusched-order-1";

static_assert(kOrderKeyBytes == crypto_sign_PUBLICKEYBYTES);
static_assert(kOrderSignatureBytes == crypto_sign_BYTES);

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* text) const { BIO_free(text); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

void add_number(uint64_t number, int bytes, std::string& to) {
  for (int i = bytes - 1; i >= 0; --i) to += static_cast<char>(number >> (8 * i) & 0xff);
}

std::string pem_of(const EVP_PKEY* key) {
  const std::unique_ptr<BIO, Free> text(BIO_new(BIO_s_mem()));
  CHECK(text != nullptr);
  CHECK(PEM_write_bio_PrivateKey(text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

Key read_key(std::FILE* from) {
  // A passphrase is asked of nobody.
  Key key(PEM_read_PrivateKey(from, nullptr, [](char*, int, int, void*) { return 0; }, nullptr));
  ERR_clear_error();
  return key;
}

/// Nothing: it is a key of another kind.
std::string seed_of(const EVP_PKEY* key) {
  std::array<unsigned char, crypto_sign_SEEDBYTES> seed;
  std::size_t size = seed.size();
  const bool right = EVP_PKEY_is_a(key, "ED25519") == 1 &&
                     EVP_PKEY_get_raw_private_key(key, seed.data(), &size) == 1 && size == seed.size();
  ERR_clear_error();
  std::string out = right ? std::string(reinterpret_cast<const char*>(seed.data()), seed.size()) : "";
  sodium_memzero(seed.data(), seed.size());
  return out;
}

}  // namespace

OrderKey OrderKey::of_seed(std::string_view seed) {
  init_sodium();
  CHECK(seed.size() == crypto_sign_SEEDBYTES);
  OrderKey made;
  made.secret_.resize(crypto_sign_SECRETKEYBYTES);
  made.public_key_.resize(kOrderKeyBytes);
  CHECK(crypto_sign_seed_keypair(bytes_of(made.public_key_), bytes_of(made.secret_), bytes_of(seed)) == 0);
  return made;
}

OrderKey::~OrderKey() { sodium_memzero(secret_.data(), secret_.size()); }

Result<OrderKey> OrderKey::open(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr && errno != ENOENT) return file_error("read", path);
  if (file == nullptr) {
    const Key made(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    CHECK(made != nullptr);
    if (const Result<Unit> written = write_whole(path, pem_of(made.get()), 0600); !written)
      return written.error();
    return of_seed(seed_of(made.get()));
  }
  struct stat facts{};
  const bool private_file = ::fstat(::fileno(file), &facts) == 0 && (facts.st_mode & 077) == 0;
  const Key key = private_file ? read_key(file) : nullptr;
  std::fclose(file);
  if (!private_file) {
    return Error{ErrorCode::kPermissionDenied,
                 path +
                     " can be read by others, who could order this scheduler's nodes to run anything; run "
                     "chmod 600 on it, or remove it and join every node with a certificate anew"};
  }
  const std::string seed = key == nullptr ? std::string() : seed_of(key.get());
  if (seed.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 path +
                     " holds no Ed25519 key in PEM format; restore it from a backup, or remove it and join "
                     "every node with a certificate anew"};
  }
  return of_seed(seed);
}

std::string OrderKey::sign(std::string_view message) const {
  std::string signature(kOrderSignatureBytes, '\0');
  CHECK(crypto_sign_detached(bytes_of(signature), nullptr, bytes_of(message), message.size(),
                             bytes_of(std::string_view(secret_))) == 0);
  return signature;
}

bool is_signed_by(std::string_view public_key, std::string_view message, std::string_view signature) {
  init_sodium();
  return public_key.size() == kOrderKeyBytes && signature.size() == kOrderSignatureBytes &&
         crypto_sign_verify_detached(bytes_of(signature), bytes_of(message), message.size(),
                                     bytes_of(public_key)) == 0;
}

std::string order_text(const OrderPlace& place, std::initializer_list<std::string_view> order) {
  init_sodium();
  std::string text(kOrderMark);
  for (const std::string_view part : {place.node, place.nonce}) {
    add_number(part.size(), 4, text);
    text += part;
  }
  add_number(place.sequence, 8, text);
  crypto_generichash_state state;
  std::string digest(crypto_generichash_BYTES, '\0');
  crypto_generichash_init(&state, nullptr, 0, digest.size());
  for (const std::string_view part : order) crypto_generichash_update(&state, bytes_of(part), part.size());
  crypto_generichash_final(&state, bytes_of(digest), digest.size());
  return text + digest;
}

}  // namespace gpusched::sign
