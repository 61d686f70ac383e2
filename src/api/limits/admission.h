#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "access/actions.h"
#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "api/limits/caller_table.h"
#include "api/limits/failed_credentials.h"

/// Checks that every call passes before its door looks at it, over REST as over gRPC: who calls, how often,
/// and how much at a time. One for all doors of a scheduler.
namespace gpusched::api {

/// How much a call matters that does this; nothing: nobody knows.
CallNeed need_of(std::optional<access::Action> action);

/// Thread-safe.
class Admission {
 public:
  explicit Admission(const CallerLimits& limits);

  /// Takes one request from the address's budget, or says why not (kRateLimited). Before anything else.
  std::optional<ApiError> take(std::string_view address);
  /// The caller, as the doorkeeper says. Where wrong credentials come from too often, and for a key that they
  /// name, only those are looked at that were good before or name a key that there is: for all others no hash
  /// is computed and no signature looked at (kRateLimited). `peer`: as the doorkeeper has it.
  Answer<CallerPtr> caller_of(const Doorkeeper& doorkeeper, std::string_view address,
                              std::string_view authorization, const CallerPtr& peer = nullptr);
  /// Lets a call of that caller in.
  Answer<CallTicket> open(const access::Caller& caller, std::string_view address, CallRoom room,
                          const std::function<CallNeed()>& need);
  /// The party charged for bytes that come before anybody looked at the call: the caller, or where it is
  /// from. The latter, too, for a credential that was not good here before: a client that sends heads alone
  /// has no hash computed that nobody counts.
  std::string payer_of(const Doorkeeper& doorkeeper, std::string_view address, std::string_view authorization,
                       const CallerPtr& peer = nullptr);

  CallerTable& callers() { return *callers_; }
  std::size_t addresses() const;  ///< Addresses that are remembered.
  /// Calls that came without a credential, of somebody whom nothing else names, where such are let in.
  uint64_t calls_without_credential() const { return anonymous_.load(std::memory_order_relaxed); }

 private:
  std::optional<ApiError> hold_off(const Doorkeeper& doorkeeper, const std::string& group,
                                   std::string_view authorization, uint64_t fingerprint, Time now);

  const CallerLimits limits_;
  const std::function<Time()> now_;
  const std::shared_ptr<CallerTable> callers_;
  std::atomic<uint64_t> anonymous_{0};
  mutable std::mutex mutex_;  // Guards the rest.
  RecentTable<TokenBucket> addresses_;
  FailedCredentials failed_;
};

}  // namespace gpusched::api
