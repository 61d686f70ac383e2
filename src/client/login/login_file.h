#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "client/login/provider.h"

namespace gpusched::login {

/// A person's login for one scheduler, with its tokens.
struct Login {
  std::string api_url;  ///< The one scheduler that is sent the token.
  std::string issuer, client_id, scopes;
  std::string ca_file;  ///< Authorities for https to the provider; empty: the machine's.
  bool sends_access_token = false;
  std::string subject;  ///< Subject of the id token; empty: there was none.
  std::string access_token, id_token, refresh_token;
  int64_t expires_at = 0;  ///< End of the token that is sent: seconds since 1970.
  int64_t renew_at = 0;    ///< When to get another one.

  const std::string& token() const { return sends_access_token ? access_token : id_token; }
};

/// Takes over the tokens of an answer, got at `now`, seconds since 1970. Fields that the answer leaves out
/// stay as they are, except the token that is sent. kUnauthenticated: that one is not there.
Result<Unit> take_tokens(Login& login, const TokenAnswer& answer, int64_t now);

/// The file of the login for a scheduler, in the folder of logins.
std::string login_file(const std::string& folder, const std::string& api_url);

/// Nothing: there is none. kPermissionDenied: it is another user's, or others can read it. kIo: it cannot be
/// read, or is no login for that scheduler.
Result<std::optional<Login>> load_login(const std::string& folder, const std::string& api_url);
/// Whole or not at all, mode 0600 in a folder of mode 0700, and synced. Under the lock.
Result<Unit> save_login(const std::string& folder, const Login& login);
/// Under the lock.
Result<Unit> remove_login(const std::string& folder, const std::string& api_url);

/// Held while a login changes: of several processes one uses up a refresh token.
class LoginLock {
 public:
  /// kLocked: another process had it all the time.
  static Result<LoginLock> take(const std::string& folder, Duration patience);
  LoginLock(LoginLock&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  LoginLock& operator=(LoginLock&&) = delete;
  ~LoginLock();

 private:
  explicit LoginLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

/// Credential for the scheduler, and its end.
struct Credential {
  std::string token;
  std::string issuer;
  int64_t renew_at = 0;  ///< Seconds since 1970: then ask again.
};

/// The token for a scheduler; nothing: nobody has logged in for it. Gets another one from the provider when
/// it is time, as one process of many. kUnauthenticated: one must log in again. kUnavailable: the provider
/// does not answer, and the token has expired. Otherwise as load_login. `now`: seconds since 1970.
Result<std::optional<Credential>> current_credential(const std::string& folder, const std::string& api_url,
                                                     int64_t now);

}  // namespace gpusched::login
