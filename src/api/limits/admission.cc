#include "api/limits/admission.h"

#include <algorithm>
#include <chrono>

#include "api/contract/token.h"
#include "api/limits/address_group.h"
#include "api/limits/network_callers.h"
#include "sign/api_key.h"

namespace gpusched::api {
namespace {

Time monotonic_now() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}

/// The name under which a caller's limits are kept. Callers without a credential are told apart by where they
/// come from, which over a Unix socket is the user.
std::string limited_name(const access::Caller& caller, std::string_view address) {
  const bool anonymous = caller.kind == access::CallerKind::kAnonymous;
  std::string name(to_string(caller.kind));
  name += ' ';
  return anonymous ? name + address_group(address) : name + caller.name;
}

/// Where all others need one.
Answer<CallerPtr> caller_without_credential(const Doorkeeper& doorkeeper, std::string_view address) {
  if (const auto* const networks = dynamic_cast<const NetworkCallers*>(doorkeeper.tokens))
    return networks->caller_at(address);
  return missing_credential(
      "callers without one are let in from other machines where api.anonymous_networks says so, and on "
      "loopback where api.token_required is false");
}

/// The prefix of the key that it names, if there is such a key; else nothing.
std::string_view key_named_in(const Doorkeeper& doorkeeper, std::string_view authorization) {
  if (doorkeeper.keys == nullptr) return {};
  const auto key = sign::parse_api_key(bearer_of(authorization));
  return key && doorkeeper.keys->is_there(key->prefix) ? key->prefix : std::string_view();
}

}  // namespace

CallNeed need_of(std::optional<access::Action> action) {
  using enum access::Action;
  if (!action) return CallNeed::kOrdinary;
  switch (*action) {
    case kSeeHealth:
      return CallNeed::kHealth;
    case kSeeMetrics:
    case kSeeNode:
    case kCancelJob:
    case kRevokeKey:
    case kDrainNode:
    case kResumeNode:
    case kRebootNode:
    case kSetDevice:
    case kConfirmNodeDead:
    case kRemoveNode:
    case kRevokeNode:
    case kPauseStarts:
      return CallNeed::kVital;
    default:
      return CallNeed::kOrdinary;
  }
}

Admission::Admission(const CallerLimits& limits)
    : limits_(limits),
      now_(limits.now != nullptr ? limits.now : monotonic_now),
      callers_(std::make_shared<CallerTable>(limits)),
      addresses_(limits.callers_kept),
      failed_(limits.failed_rate, limits.callers_kept) {}

std::optional<ApiError> Admission::take(std::string_view address) {
  if (!limits_.address_rate.is_limited()) return std::nullopt;
  const std::string group = address_group(address);
  std::optional<Duration> wait;
  {
    const std::lock_guard lock(mutex_);
    wait = addresses_.at(group).value.take(limits_.address_rate, now_());
  }
  if (!wait) return std::nullopt;
  callers_->count(Refused::kAddressRate);
  return ApiError{ErrorKind::kRateLimited,
                  "too many requests from this address; send fewer requests, or submit jobs in batches", "",
                  std::max(*wait, seconds(1))};
}

/// Why the credential is not even looked at. The shared token is compared without a hash, and so costs
/// nothing.
std::optional<ApiError> Admission::hold_off(const Doorkeeper& doorkeeper, const std::string& group,
                                            std::string_view authorization, uint64_t fingerprint, Time now) {
  std::optional<Duration> wait;
  {
    const std::lock_guard lock(mutex_);
    wait = failed_.spent(group, now);
    if (!wait || failed_.remembers(fingerprint)) return std::nullopt;
  }
  if (bearer_matches(authorization, doorkeeper.token)) return std::nullopt;
  const std::string_view key = key_named_in(doorkeeper, authorization);
  if (!key.empty()) {
    const std::lock_guard lock(mutex_);
    if (!failed_.spent(key, now)) return std::nullopt;
  }
  callers_->count(Refused::kFailedCredentials);
  return ApiError{ErrorKind::kRateLimited,
                  "too many wrong credentials came from this address, and this one was not looked at; wait, "
                  "then send the right one",
                  "", std::max(*wait, seconds(1))};
}

Answer<CallerPtr> Admission::caller_of(const Doorkeeper& doorkeeper, std::string_view address,
                                       std::string_view authorization, const CallerPtr& peer) {
  if (authorization.empty()) {  // Nothing is tried.
    Answer<CallerPtr> caller = doorkeeper.caller_of(authorization, peer);
    if (!caller) caller = caller_without_credential(doorkeeper, address);
    if (caller && (*caller)->kind == access::CallerKind::kAnonymous)
      anonymous_.fetch_add(1, std::memory_order_relaxed);
    return caller;
  }
  const std::string group = address_group(address);
  const Time now = now_();
  const uint64_t fingerprint = failed_.fingerprint(authorization);  // Long texts are hashed without the lock.
  if (auto refused = hold_off(doorkeeper, group, authorization, fingerprint, now)) return *refused;
  Answer<CallerPtr> caller = doorkeeper.caller_of(authorization, peer);
  if (caller) {
    const std::lock_guard lock(mutex_);
    failed_.remember(fingerprint);
  } else if (caller.error().kind != ErrorKind::kUnavailable) {  // Then nothing was looked at.
    const std::string_view key = key_named_in(doorkeeper, authorization);
    const std::lock_guard lock(mutex_);
    failed_.forget(fingerprint);
    failed_.count(group, now);
    if (!key.empty()) failed_.count(key, now);
  }
  return caller;
}

Answer<CallTicket> Admission::open(const access::Caller& caller, std::string_view address, CallRoom room,
                                   const std::function<CallNeed()>& need) {
  return callers_->open(limited_name(caller, address), room, need, now_());
}

std::string Admission::payer_of(const Doorkeeper& doorkeeper, std::string_view address,
                                std::string_view authorization, const CallerPtr& peer) {
  if (!authorization.empty() && !bearer_matches(authorization, doorkeeper.token)) {
    const uint64_t fingerprint = failed_.fingerprint(authorization);
    const std::lock_guard lock(mutex_);
    if (!failed_.remembers(fingerprint)) return address_group(address);
  }
  const Answer<CallerPtr> caller = doorkeeper.caller_of(authorization, peer);
  return caller ? limited_name(**caller, address) : address_group(address);
}

std::size_t Admission::addresses() const {
  const std::lock_guard lock(mutex_);
  return addresses_.size() + failed_.parties();
}

}  // namespace gpusched::api
