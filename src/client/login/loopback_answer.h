#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "client/login/provider.h"

namespace gpusched::login {

/// Where a browser brings the provider's answer: a port of this machine's loopback (RFC 8252, section 7.3),
/// for one answer. Not thread-safe.
class LoopbackAnswer {
 public:
  static Result<LoopbackAnswer> open();
  LoopbackAnswer(LoopbackAnswer&& other) noexcept : listener_(other.listener_), port_(other.port_) {
    other.listener_ = -1;
  }
  LoopbackAnswer& operator=(LoopbackAnswer&&) = delete;
  ~LoopbackAnswer();

  std::string redirect_uri() const;
  /// The query of the one request to the redirect URI, which ends the waiting whatever it says; requests to
  /// other paths get 404. kTimeout: none came.
  Result<Form> wait(Duration patience);

 private:
  LoopbackAnswer(int listener, uint16_t port) : listener_(listener), port_(port) {}
  int listener_;
  uint16_t port_;
};

/// The code in the provider's answer to a login with this state. kPermissionDenied: somebody said no.
/// kUnauthenticated: it is the answer to another login, or another provider's (RFC 9207).
Result<std::string> code_of(const Form& answer, const std::string& state, const std::string& issuer);

}  // namespace gpusched::login
