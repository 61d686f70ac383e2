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
/// Not thread-safe.
class FailedCredentials {
 public:
  FailedCredentials(const Rate& rate, std::size_t names_max);

  /// How long until the party may try again; nothing: it may now.
  std::optional<Duration> spent(std::string_view party, Time now);
  void count(std::string_view party, Time now);

  /// Keeps a fingerprint of a credential that was good, in a table of fixed size. It says nothing about
  /// whether the credential still is.
  void remember(std::string_view credential);
  bool remembers(std::string_view credential) const;
  void forget(std::string_view credential);

  std::size_t parties() const { return failed_.size(); }

 private:
  uint64_t fingerprint(std::string_view credential) const;

  const Rate rate_;
  RecentTable<TokenBucket> failed_;
  std::string fingerprint_key_;
  std::vector<uint64_t> good_;
};

}  // namespace gpusched::api
