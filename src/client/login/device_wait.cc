#include "client/login/device_wait.h"

#include <algorithm>

namespace gpusched::login {
namespace {

constexpr Duration kSlower = seconds(5);
constexpr Duration kIntervalMax = minutes(1);

}  // namespace

Error device_code_expired() {
  return {.code = ErrorCode::kTimeout,
          .message = "the code has expired before anybody entered it; log in again with gpu-cli login"};
}

DeviceWait::DeviceWait(const DeviceGrant& grant, Time now)
    : ends_(now + grant.lives), interval_(grant.interval) {}

std::optional<Duration> DeviceWait::pause(Time now) const {
  if (now.ns >= ends_.ns) return std::nullopt;
  return std::min(interval_, Duration{ends_.ns - now.ns});
}

std::optional<Error> DeviceWait::problem(const Result<TokenAnswer>& answer) {
  if (!answer) {
    // It may be away for a moment: asked less often, as long as the code lives.
    if (answer.error().code != ErrorCode::kUnavailable) return answer.error();
    interval_ = std::min(interval_ * 2, kIntervalMax);
    return std::nullopt;
  }
  if (answer->error == "authorization_pending") return std::nullopt;
  if (answer->error == "slow_down") {
    interval_ = std::min(interval_ + kSlower, kIntervalMax);
    return std::nullopt;
  }
  if (answer->error == "expired_token") return device_code_expired();
  if (answer->error == "access_denied")
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = "the login was denied at the provider; nothing is kept"};
  return Error{.code = ErrorCode::kUnauthenticated,
               .message = "the provider refuses the login: " + answer->error +
                          (answer->reason.empty() ? "" : " (" + answer->reason + ")")};
}

}  // namespace gpusched::login
