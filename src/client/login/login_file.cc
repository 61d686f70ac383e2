#include "client/login/login_file.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/errors.h"
#include "client/json.h"
#include "client/login/id_token.h"

namespace gpusched::login {
namespace {

constexpr std::size_t kFileBytesMax = 64 << 10;
constexpr int64_t kMarginMax = 60;     ///< Seconds before its end when a token is exchanged, at most.
constexpr int64_t kMarginPart = 4;     ///< Part of its life before its end, at most.
constexpr int64_t kLifeUnknown = 300;  ///< Seconds, of a token that does not say.
constexpr int64_t kLifeMax = 366 * 86'400;
constexpr int64_t kRetryAfter = 30;  ///< Seconds, where the provider does not answer.
constexpr int64_t kEnough = 10;      ///< Seconds that a token lives and another process may renew it.
constexpr Duration kLockPatience = seconds(40);  ///< Longer than the provider is given.
constexpr int kPauseMs = 20;

Error broken(const std::string& path, const std::string& what) {
  return {
      .code = ErrorCode::kIo,
      .message = path + " " + what + "; remove it with gpu-cli logout, then log in again with gpu-cli login"};
}

bool write_whole(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(descriptor, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return ::fsync(descriptor) == 0;
}

/// Folders above are made, too: readable to their owner alone.
void make_folder(const std::string& folder) {
  for (std::size_t slash = folder.find('/', 1); slash != std::string::npos;
       slash = folder.find('/', slash + 1))
    ::mkdir(folder.substr(0, slash).c_str(), 0700);
  ::mkdir(folder.c_str(), 0700);
}

std::string text_of(const Login& login) {
  JsonObjectWriter out;
  out.add("api_url", login.api_url);
  out.add("issuer", login.issuer);
  out.add("client_id", login.client_id);
  out.add("scopes", login.scopes);
  if (!login.ca_file.empty()) out.add("ca_file", login.ca_file);
  out.add("token", login.sends_access_token ? "access" : "id");
  out.add("subject", login.subject);
  out.add("access_token", login.access_token);
  out.add("id_token", login.id_token);
  out.add("refresh_token", login.refresh_token);
  out.add("expires_at", login.expires_at);
  out.add("renew_at", login.renew_at);
  return out.text() + "\n";
}

/// The file's bytes; nothing: there is none.
Result<std::optional<std::string>> read_private(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) {
    const int why = errno;
    // HOME may still be another user's folder, which is closed to this one: no login of its is in there.
    struct stat ignored{};
    const bool is_closed = why == EACCES && ::lstat(path.c_str(), &ignored) != 0;
    if (why == ENOENT || why == ENOTDIR || is_closed) return std::optional<std::string>();
    errno = why;
    return io_error("cannot read " + path);
  }
  struct stat facts{};
  const bool known = ::fstat(descriptor, &facts) == 0;
  std::string text(kFileBytesMax + 1, '\0');
  const bool is_mine = known && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid();
  const ssize_t size = is_mine ? ::read(descriptor, text.data(), text.size()) : 0;
  ::close(descriptor);
  if (!is_mine || (facts.st_mode & 077) != 0)
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = path + (is_mine ? " can be read by others; log in again with gpu-cli login, and "
                                              "log out at the provider"
                                            : " is not a file of this user; set HOME or XDG_CONFIG_HOME to "
                                              "folders of your own")};
  if (size < 0) return io_error("cannot read " + path);
  text.resize(static_cast<std::size_t>(size));
  if (text.size() > kFileBytesMax) return broken(path, "is too large");
  return std::optional(std::move(text));
}

/// Exchanges the refresh token. Under the lock.
Result<Unit> renew(Login& login, int64_t now) {
  const Result<Provider> provider = Provider::discover(login.issuer, login.ca_file);
  if (!provider) return provider.error();
  const Result<TokenAnswer> answer = provider->ask_token({{"grant_type", "refresh_token"},
                                                          {"refresh_token", login.refresh_token},
                                                          {"client_id", login.client_id},
                                                          {"scope", login.scopes}});
  if (!answer) return answer.error();
  if (!answer->error.empty())
    return Error{.code = ErrorCode::kUnauthenticated,
                 .message = answer->error + (answer->reason.empty() ? "" : ", " + answer->reason)};
  if (!answer->id_token.empty()) {
    const Result<TokenClaims> claims =
        check_id_token(answer->id_token, login.issuer, login.client_id, "", now);
    if (!claims) return claims.error();
    // OpenID Connect Core 1.0, section 12.2.
    if (!login.subject.empty() && claims->subject != login.subject)
      return Error{.code = ErrorCode::kUnauthenticated, .message = "the new token is another person's"};
  }
  return take_tokens(login, *answer, now);
}

Credential credential_of(const Login& login) {
  return {.token = login.token(), .issuer = login.issuer, .renew_at = login.renew_at};
}

Error ended(const Login& login, const std::string& why) {
  return {.code = ErrorCode::kUnauthenticated,
          .message = "the login at " + login.issuer + " has ended" + (why.empty() ? "" : " (" + why + ")") +
                     "; log in again with gpu-cli login"};
}

/// Renews, with the lock held.
Result<std::optional<Credential>> renewed(const std::string& folder, Login login, int64_t now) {
  if (login.refresh_token.empty()) {
    if (now >= login.expires_at) return ended(login, "its token has expired, and the provider gave no other");
    return std::optional(
        Credential{.token = login.token(), .issuer = login.issuer, .renew_at = login.expires_at});
  }
  Login fresh = login;
  const Result<Unit> done = renew(fresh, now);
  if (done) {
    if (const Result<Unit> saved = save_login(folder, fresh); !saved) return saved.error();
    return std::optional(credential_of(fresh));
  }
  if (done.error().code == ErrorCode::kUnauthenticated) {
    // It is worth nothing any more, and asking again each time would be heard as an attack.
    login.refresh_token.clear();
    if (const Result<Unit> saved = save_login(folder, login); !saved) return saved.error();
    if (now >= login.expires_at) return ended(login, done.error().message);
    return std::optional(
        Credential{.token = login.token(), .issuer = login.issuer, .renew_at = login.expires_at});
  }
  if (now >= login.expires_at) return done.error();
  return std::optional(
      Credential{.token = login.token(),
                 .issuer = login.issuer,
                 .renew_at = std::min(now + kRetryAfter, std::max(login.expires_at, now + 1))});
}

/// By the algorithm itself: every command looks for its login, and all that SHA256() does before it, which is
/// to read OpenSSL's configuration and load its providers, takes as long as a call to the scheduler.
std::array<unsigned char, SHA256_DIGEST_LENGTH> sha256_of(const std::string& text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256_CTX context;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  SHA256_Init(&context);
  SHA256_Update(&context, text.data(), text.size());
  SHA256_Final(digest.data(), &context);
#pragma GCC diagnostic pop
  return digest;
}

}  // namespace

Result<Unit> take_tokens(Login& login, const TokenAnswer& answer, int64_t now) {
  const std::string& token = login.sends_access_token ? answer.access_token : answer.id_token;
  if (token.empty())
    return Error{.code = ErrorCode::kUnauthenticated,
                 .message = std::string("the provider gave no ") +
                            (login.sends_access_token ? "access" : "id") + " token"};
  login.access_token = answer.access_token;
  if (!answer.id_token.empty()) login.id_token = answer.id_token;
  if (!answer.refresh_token.empty()) login.refresh_token = answer.refresh_token;
  // How long it lives, and not until when: this machine's clock may be another than the provider's.
  const std::optional<TokenClaims> claims = peek_token(token);
  int64_t life = login.sends_access_token ? answer.expires_in : 0;
  if (life == 0 && claims && claims->expires_at > 0 && claims->issued_at > 0)
    life = claims->expires_at - claims->issued_at;
  if (life == 0 && claims && claims->expires_at > 0) life = claims->expires_at - now;
  if (life == 0) life = kLifeUnknown;
  life = std::clamp<int64_t>(life, 1, kLifeMax);
  login.expires_at = now + life;
  login.renew_at = login.expires_at - std::min(kMarginMax, life / kMarginPart);
  return Unit{};
}

std::string login_file(const std::string& folder, const std::string& api_url) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  const std::array<unsigned char, SHA256_DIGEST_LENGTH> digest = sha256_of(api_url);
  std::string name;
  for (std::size_t i = 0; i < 16; ++i) {
    name += kHex[digest[i] >> 4];
    name += kHex[digest[i] & 15];
  }
  return folder + "/" + name + ".json";
}

Result<std::optional<Login>> load_login(const std::string& folder, const std::string& api_url) {
  const std::string path = login_file(folder, api_url);
  const Result<std::optional<std::string>> text = read_private(path);
  if (!text) return text.error();
  if (!text->has_value()) return std::optional<Login>();
  const Result<Json> json = Json::parse(**text);
  if (!json || !json->is_object()) return broken(path, "is no login");
  Login login{.api_url = (*json)["api_url"].text(),
              .issuer = (*json)["issuer"].text(),
              .client_id = (*json)["client_id"].text(),
              .scopes = (*json)["scopes"].text(),
              .ca_file = (*json)["ca_file"].text(),
              .sends_access_token = (*json)["token"].text() == "access",
              .subject = (*json)["subject"].text(),
              .access_token = (*json)["access_token"].text(),
              .id_token = (*json)["id_token"].text(),
              .refresh_token = (*json)["refresh_token"].text(),
              .expires_at = (*json)["expires_at"].integer(),
              .renew_at = (*json)["renew_at"].integer()};
  if (login.api_url != api_url || login.token().empty()) return broken(path, "is no login for " + api_url);
  return std::optional(std::move(login));
}

Result<Unit> save_login(const std::string& folder, const Login& login) {
  make_folder(folder);
  const std::string path = login_file(folder, login.api_url);
  const std::string fresh = path + ".new";  // One at a time: under the lock.
  ::unlink(fresh.c_str());
  const int descriptor = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return io_error("cannot write " + fresh);
  const bool written = write_whole(descriptor, text_of(login));
  ::close(descriptor);
  if (written && ::rename(fresh.c_str(), path.c_str()) == 0) return Unit{};
  const Error error = io_error("cannot write " + path);
  ::unlink(fresh.c_str());
  return error;
}

Result<Unit> remove_login(const std::string& folder, const std::string& api_url) {
  const std::string path = login_file(folder, api_url);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return io_error("cannot remove " + path);
  return Unit{};
}

Result<LoginLock> LoginLock::take(const std::string& folder, Duration patience) {
  make_folder(folder);
  const std::string path = folder + "/lock";
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return io_error("cannot open " + path);
  LoginLock lock(descriptor);
  for (int64_t waited_ms = 0;; waited_ms += kPauseMs) {
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK && errno != EINTR) return io_error("cannot lock " + path);
    if (waited_ms >= patience.ms()) break;
    ::poll(nullptr, 0, kPauseMs);
  }
  return Error{.code = ErrorCode::kLocked,
               .message = "another gpu-cli renews the login and takes long; try again"};
}

LoginLock::~LoginLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::optional<Credential>> current_credential(const std::string& folder, const std::string& api_url,
                                                     int64_t now) {
  const Result<std::optional<Login>> known = load_login(folder, api_url);
  if (!known) return known.error();
  if (!known->has_value()) return std::optional<Credential>();
  if (now < (*known)->renew_at) return std::optional(credential_of(**known));
  const bool lives = now + kEnough < (*known)->expires_at;
  const Result<LoginLock> lock = LoginLock::take(folder, lives ? Duration{} : kLockPatience);
  if (!lock && lives) {
    Credential credential = credential_of(**known);
    credential.renew_at = now + kEnough;
    return std::optional(std::move(credential));
  }
  if (!lock) return lock.error();
  // Another process may have renewed it meanwhile, or logged out.
  const Result<std::optional<Login>> login = load_login(folder, api_url);
  if (!login) return login.error();
  if (!login->has_value()) return std::optional<Credential>();
  if (now < (*login)->renew_at) return std::optional(credential_of(**login));
  return renewed(folder, **login, now);
}

}  // namespace gpusched::login
