#include "sign/keys/password.h"

#include <sodium.h>

#include <array>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched::sign {
namespace {

static_assert(crypto_pwhash_STRBYTES <= limits::kPasswordHashBytesMax);

void need_pwhash() {
  static const bool ready = sodium_init() >= 0;
  CHECK(ready);
}

}  // namespace

std::optional<std::string> hash_password(std::string_view password) {
  need_pwhash();
  std::array<char, crypto_pwhash_STRBYTES> text{};
  const int failed =
      crypto_pwhash_str_alg(text.data(), password.data(), password.size(), crypto_pwhash_OPSLIMIT_INTERACTIVE,
                            crypto_pwhash_MEMLIMIT_INTERACTIVE, crypto_pwhash_ALG_ARGON2ID13);
  if (failed != 0) return std::nullopt;
  return std::string(text.data());
}

bool is_password(std::string_view password, std::string_view hash) {
  need_pwhash();
  return crypto_pwhash_str_verify(std::string(hash).c_str(), password.data(), password.size()) == 0;
}

}  // namespace gpusched::sign
