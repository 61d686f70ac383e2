#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/contract/caller.h"

/// People who signed in at the provider of identities with a browser, and come back with a cookie.
namespace gpusched::api {

/// Where browsers reach this server, as they see it. A cookie counts there alone.
struct BrowserPlace {
  std::string origin;  ///< "https://gpu.example.com:8080", in lower case, without the scheme's own port.
  std::string host;    ///< "gpu.example.com:8080": as a Host header has it.
  bool is_https = true;

  bool operator==(const BrowserPlace&) const = default;
};

/// Finds the holders of sessions. Thread-safe.
class SessionHolders {
 public:
  virtual ~SessionHolders() = default;
  /// Null: nobody signs in here, and no cookie is looked at.
  virtual std::shared_ptr<const BrowserPlace> place() const = 0;
  /// Takes untrusted bytes. kUnauthenticated: it is no session, or it has ended. As TokenHolders otherwise.
  virtual Answer<CallerPtr> holder_of_session(std::string_view id) const = 0;
};

}  // namespace gpusched::api
