#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "api/contract/caller.h"
#include "base/time.h"
#include "model/identity/access_key.h"

namespace gpusched::api {

/// Open calls and streams by their key, so that they end with the key. An entry for each of them, and none
/// for keys under which nothing is open. Thread-safe.
class OpenUnderKeys final : public std::enable_shared_from_this<OpenUnderKeys> {
 public:
  struct Open {
    CallerPtr caller;
    std::optional<access::Action> action;  ///< Its action; none: nobody knows.
    Time expires_at;                       ///< End of the key; none: never.
    std::function<void(const ApiError&)> end;
  };
  /// Nothing: it goes on.
  using Why = std::function<std::optional<ApiError>(const Open&)>;

  /// Until the token is dropped. `end` is called once at most, on any thread, without a lock; where that
  /// overlaps with dropping the token, it may come after it.
  std::shared_ptr<void> add(KeyId key, Open open);
  /// Ends what of the key `why` has an error for.
  void look_at(KeyId key, const Why& why);
  /// Ends what is open under keys that have expired by then.
  void expire(Time now, const std::function<ApiError(KeyId)>& why);

  std::size_t size() const;

 private:
  using Place = std::pair<KeyId, uint64_t>;
  using Ended = std::vector<std::pair<Open, ApiError>>;
  void remove(const Place& place);
  static void tell(const Ended& ended);

  mutable std::mutex mutex_;  // Guards all below.
  std::map<Place, Open> open_;
  std::set<std::pair<Time, Place>> expiring_;  ///< Those of keys that expire, the first one first.
  uint64_t next_ = 1;
};

}  // namespace gpusched::api
