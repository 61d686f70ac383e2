#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/limits/recent_table.h"
#include "api/limits/token_bucket.h"
#include "base/time.h"

namespace gpusched::api {

/// How often wrong credentials came, by where they came from or which key they named, and which were good.
/// Not thread-safe, except `fingerprint`.
class FailedCredentials {
 public:
  FailedCredentials(const Rate& rate, std::size_t names_max);

  /// How long until the party may try again; nothing: it may now.
  std::optional<Duration> spent(std::string_view party, Time now);
  void count(std::string_view party, Time now);

  /// The number that a credential is remembered by. It costs a hash of the whole text, and needs no lock.
  uint64_t fingerprint(std::string_view credential) const;
  /// Keeps the fingerprint of a credential that was good, in a table of fixed size. It says nothing about
  /// whether the credential still is.
  void remember(uint64_t fingerprint);
  bool remembers(uint64_t fingerprint) const;
  void forget(uint64_t fingerprint);

  std::size_t parties() const { return failed_.size(); }

 private:
  const Rate rate_;
  RecentTable<TokenBucket> failed_;
  const std::string fingerprint_key_;
  std::vector<uint64_t> good_;
};

}  // namespace gpusched::api
