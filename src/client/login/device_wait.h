#pragma once

#include <optional>

#include "base/result.h"
#include "base/time.h"
#include "client/login/provider.h"

namespace gpusched::login {

/// When to ask for the tokens of a device grant, and what the answers mean (RFC 8628, sections 3.4 and 3.5).
/// A value; time comes from outside.
class DeviceWait {
 public:
  DeviceWait(const DeviceGrant& grant, Time now);

  /// How long to wait before the next question; nothing: the code has expired.
  std::optional<Duration> pause(Time now) const;
  /// After an answer. Nothing: ask again. kPermissionDenied: somebody said no; kTimeout: the code has
  /// expired; kUnauthenticated: the provider refuses for another reason.
  std::optional<Error> problem(const Result<TokenAnswer>& answer);

 private:
  Time ends_;
  Duration interval_;
};

/// The sentence of a code that nobody entered in time.
Error device_code_expired();

}  // namespace gpusched::login
