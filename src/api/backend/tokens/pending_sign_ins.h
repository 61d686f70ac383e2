#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace gpusched::api {

/// The state of a browser that was sent to the provider.
struct PendingSignIn {
  std::string state, nonce, verifier;
  std::string party;  ///< The browser's address, as limits have it.
  Time ends_at;       ///< By a clock that never goes back.
};

/// Browsers that were sent to the provider, by the hash of their cookie. Bounded: a party that begins too
/// many loses its own oldest ones, and where all together are too many the party with the most loses one, so
/// that nobody crowds out another. Not thread-safe.
class PendingSignIns {
 public:
  static constexpr std::size_t kMax = 4'096, kOfPartyMax = 32;

  void add(std::string hash, PendingSignIn pending);
  /// Until the next call; null: there is none, or it took too long.
  const PendingSignIn* find(const std::string& hash, Time now) const;
  /// It is answered: nobody answers it again.
  std::optional<PendingSignIn> take(const std::string& hash, Time now);
  /// Forgets those that took too long.
  void sweep(Time now);
  std::size_t size() const { return by_hash_.size(); }

 private:
  struct Row {
    PendingSignIn pending;
    std::list<std::string>::iterator place;  ///< Among its party's.
  };
  void remove(std::map<std::string, Row>::iterator row);

  std::map<std::string, Row> by_hash_;
  std::map<std::string, std::list<std::string>, std::less<>> by_party_;  ///< The oldest first.
};

}  // namespace gpusched::api
