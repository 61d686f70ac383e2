#include "sign/keys/token_proof.h"

#include <sodium.h>

#include "base/check.h"
#include "sign/keys/sodium.h"

namespace gpusched::sign {
namespace {

std::string hash_of(std::string_view text, std::string_view key, std::size_t bytes) {
  std::string hash(bytes, '\0');
  CHECK(crypto_generichash(reinterpret_cast<unsigned char*>(hash.data()), hash.size(),
                           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                           reinterpret_cast<const unsigned char*>(key.data()), key.size()) == 0);
  return hash;
}

}  // namespace

std::string make_nonce() {
  init_sodium();
  std::string nonce(kNonceBytes, '\0');
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

std::string prove(std::string_view token, std::string_view label, std::string_view nonce) {
  if (token.empty()) return {};
  init_sodium();
  // The hash of a token that is longer than a key may be is the key.
  const bool is_long = token.size() > crypto_generichash_KEYBYTES_MAX;
  const std::string key = is_long ? hash_of(token, {}, crypto_generichash_KEYBYTES_MAX) : std::string(token);
  return hash_of(std::string(label) + std::string(nonce), key, crypto_generichash_BYTES);
}

bool proves(std::string_view proof, std::string_view token, std::string_view label, std::string_view nonce) {
  const std::string expected = prove(token, label, nonce);
  return !expected.empty() && proof.size() == expected.size() &&
         sodium_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

}  // namespace gpusched::sign
