#include "api/limits/failed_credentials.h"

#include <sodium.h>

#include <cstring>

#include "api/contract/token.h"
#include "base/check.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kGoodKept = 16'384;

}  // namespace

FailedCredentials::FailedCredentials(const Rate& rate, std::size_t names_max)
    : rate_(rate),
      failed_(names_max),
      fingerprint_key_(random_bytes(crypto_shorthash_KEYBYTES)),
      good_(kGoodKept) {}

std::optional<Duration> FailedCredentials::spent(std::string_view party, Time now) {
  if (!rate_.is_limited() || failed_.empty()) return std::nullopt;
  auto* const row = failed_.find(party);
  return row == nullptr ? std::nullopt : row->value.look(rate_, now);
}

void FailedCredentials::count(std::string_view party, Time now) {
  if (rate_.is_limited()) failed_.at(party).value.take(rate_, now);
}

void FailedCredentials::remember(uint64_t fingerprint) { good_[fingerprint % kGoodKept] = fingerprint; }

bool FailedCredentials::remembers(uint64_t fingerprint) const {
  return good_[fingerprint % kGoodKept] == fingerprint;
}

void FailedCredentials::forget(uint64_t fingerprint) {
  if (good_[fingerprint % kGoodKept] == fingerprint) good_[fingerprint % kGoodKept] = 0;
}

/// SipHash with a key that nobody knows: nobody finds another text with the same.
uint64_t FailedCredentials::fingerprint(std::string_view credential) const {
  std::array<unsigned char, crypto_shorthash_BYTES> hash{};
  crypto_shorthash(hash.data(), reinterpret_cast<const unsigned char*>(credential.data()), credential.size(),
                   reinterpret_cast<const unsigned char*>(fingerprint_key_.data()));
  uint64_t print = 0;
  static_assert(sizeof print == crypto_shorthash_BYTES);
  std::memcpy(&print, hash.data(), sizeof print);
  return print == 0 ? 1 : print;  // An empty place is none of ours.
}

}  // namespace gpusched::api
