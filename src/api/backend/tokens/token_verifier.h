#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/backend/keys/open_under_keys.h"
#include "api/contract/caller.h"
#include "api/contract/token.h"
#include "host/host.h"
#include "model/identity/binding.h"
#include "sign/jwt.h"

namespace gpusched::api {

/// A role, and Unix users, for those who have one claim.
struct JwtRule {
  std::vector<std::string> claim;  ///< Its path: a name, and names inside of it.
  std::string value;               ///< The claim is that text, or a list with it.
  /// A tenant without a parent, by its name, or any by its id; `*`: all; empty: for a role of the cluster.
  std::string tenant;
  Role role = Role::kViewer;
  std::vector<std::string> unix_users = {};  ///< As access::Caller has them.

  bool operator==(const JwtRule&) const = default;
};

/// Tokens that are refused although they are valid. Empty fields, and those that are 0, match any token.
struct JwtRevocation {
  std::string subject;
  std::string id;             ///< `jti`.
  int64_t issued_before = 0;  ///< Seconds since 1970; a token that does not say when counts as older.

  bool operator==(const JwtRevocation&) const = default;
};

/// How people get a token, as the file of rules says it.
struct JwtLogin {
  enum class Token { kByAudience, kId, kAccess };
  std::string client_id;  ///< Empty: the file does not say how.
  std::vector<std::string> scopes = {"openid"};
  Token token =
      Token::kByAudience;  ///< The id token where the audience is the client id, else the access token.

  bool operator==(const JwtLogin&) const = default;
};

/// How people sign in with a browser, as the file of rules says it.
struct BrowserLogin {
  std::string
      redirect_url;       ///< Where the provider sends browsers back to, as they see it; empty: nobody does.
  std::string client_id;  ///< Name of the page at the provider.
  std::string secret_file;    ///< File with the client's secret; empty: it is a public client.
  std::string client_secret;  ///< The content of that file.

  bool operator==(const BrowserLogin&) const = default;
};

struct JwtRules {
  std::vector<JwtRule> rules;
  std::vector<std::string> unix_user_claim = {};  ///< Path of the claim that names a Unix user; empty: none.
  std::vector<JwtRevocation> revoked = {};
  JwtLogin login = {};
  BrowserLogin browser = {};

  bool operator==(const JwtRules&) const = default;
};

/// The providers that we believe, and what that gives.
struct JwtTrust {
  sign::JwtExpectation expected;
  JwtRules rules;

  bool operator==(const JwtTrust&) const = default;
};

/// Whether it is a name that a claim or a rule may give as a Unix user's: lower-case letters, digits, `_`,
/// `-`, no digit or `-` first, at most 32, and not root.
bool is_safe_unix_user(std::string_view name);

/// Finds the holders of the identity provider's tokens. News come from one thread at a time and hold for the
/// next call; questions come on any thread and wait for no more than a copy of a pointer.
class TokenVerifier final : public TokenHolders, public std::enable_shared_from_this<TokenVerifier> {
 public:
  /// Tokens whose verification is remembered.
  static constexpr std::size_t kRememberedMax = 4'096;

  TokenVerifier();

  /// From here on it knows the host's tenants. Once, before the doors open.
  void attach(Host& host);
  /// Null: no tokens are taken. Remembered tokens are forgotten.
  void use(std::shared_ptr<const JwtTrust> trust);
  /// The provider's keys; null: there are none at the time.
  void use_keys(std::shared_ptr<const sign::JwtKeySet> keys);
  /// Called, on any thread and often, when a token names a key that is not there. Set before the first call.
  void on_unknown_key(std::function<void()> hook) { unknown_key_ = std::move(hook); }

  /// kUnauthenticated: in one sentence for whatever nobody has signed, and with the reason for what the
  /// provider did sign. kPermissionDenied: no rule gives it a role. kUnavailable: the keys are not there.
  Answer<CallerPtr> holder_of(std::string_view token) const override;
  /// The same of an id token that the client itself was given: its audience is the client. `nonce`: what it
  /// must say, too; empty: nothing.
  Answer<CallerPtr> holder_of_id_token(std::string_view token, const std::string& client_id,
                                       std::string_view nonce = {}) const;
  /// Ended also when rules or the tenants that they name change: the client asks again, and has then what
  /// they give now.
  Answer<std::shared_ptr<void>> while_valid(const CallerPtr& caller,
                                            std::function<void(const ApiError&)> end) const override;
  /// How people get a token, for everybody to know; nothing: nobody has said it.
  std::optional<SignIn> sign_in() const;
  /// Ends what is open under tokens that have expired by now. Often; any thread.
  void end_expired() const;

  /// On the observer's thread; for tests.
  void observe(const State& state, const Changes& changes);

 private:
  struct Known {
    std::shared_ptr<const JwtTrust> trust;
    std::shared_ptr<const sign::JwtKeySet> keys;
    std::vector<TenantId> tenants;  ///< Tenant of each rule; none: it does not exist, or the rule names none.
  };
  struct Remembered {
    CallerPtr holder;
    int64_t ends_at = 0;  ///< Seconds since 1970.
    uint64_t generation = 0;
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::string, Remembered> entries;  ///< By BLAKE2b of the token.
    std::deque<std::string> order;                        ///< The oldest first.
  };
  static constexpr std::size_t kShards = 16;

  template <typename Change>
  void change(const Change& what);
  static bool give_the_same(const Known& a, const Known& b);
  void resolve(const State& state);
  /// Ends what is open, since what tokens give has changed.
  void end_all() const;
  int64_t now_seconds() const;
  /// Claims that an id token must have beside those of every token. Empty: none.
  struct IdToken {
    std::string_view client_id, nonce;
  };
  Answer<CallerPtr> find_holder(std::string_view token, const IdToken& of) const;
  Answer<CallerPtr> verify(std::string_view token, const Known& known, const IdToken& of, int64_t now,
                           int64_t& ends_at) const;
  CallerPtr recall(const std::string& hash, int64_t now, uint64_t generation) const;
  void remember(std::string hash, Remembered entry) const;
  Shard& shard_of(const std::string& hash) const {
    return shards_[static_cast<unsigned char>(hash.front()) % kShards];
  }

  Host* host_ = nullptr;
  std::function<void()> unknown_key_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Known> known_ = std::make_shared<const Known>();
  std::atomic<uint64_t> generation_{1};  ///< One more with each change of `known_`.
  std::atomic<int64_t> newest_ns_{0};    ///< Time of the last change: a wall clock set back revives no token.
  mutable std::array<Shard, kShards> shards_;
  const std::shared_ptr<OpenUnderKeys> open_ = std::make_shared<OpenUnderKeys>();  ///< All under no key.
  /// A caller let in just before a change may open something just after it: all that is open is ended again.
  mutable std::atomic<bool> end_again_{false};
};

}  // namespace gpusched::api
