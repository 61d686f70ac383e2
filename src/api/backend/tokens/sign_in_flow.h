#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "api/backend/keys/open_under_keys.h"
#include "api/backend/tokens/browser_sessions.h"
#include "api/backend/tokens/pending_sign_ins.h"
#include "api/backend/tokens/sign_in_workers.h"
#include "api/backend/tokens/token_verifier.h"
#include "api/contract/browser_sessions.h"
#include "api/contract/caller.h"
#include "api/limits/recent_table.h"
#include "api/limits/token_bucket.h"
#include "base/result.h"

namespace gpusched::api {

/// The provider of identities, as a sign-in asks it: over the network, for seconds. Thread-safe.
class SignInProvider {
 public:
  virtual ~SignInProvider() = default;
  /// Where the browser is sent. Errors are sentences for people.
  virtual Result<std::string> page_for(const std::string& state, const std::string& nonce,
                                       const std::string& verifier) = 0;
  /// The id token for a code. `named_issuer`: the browser's answer said whose it is; kUnauthenticated when it
  /// had to, and did not.
  virtual Result<std::string> id_token_for(const std::string& code, const std::string& verifier,
                                           bool named_issuer) = 0;
};

/// Where and by whom people sign in.
struct BrowserSignIn {
  BrowserPlace place;
  std::string issuer, client_id, redirect_url;
  std::shared_ptr<SignInProvider> provider;

  /// Sessions of the one are sessions of the other.
  friend bool same_sessions(const BrowserSignIn& a, const BrowserSignIn& b) {
    return a.place == b.place && a.issuer == b.issuer && a.client_id == b.client_id;
  }
};

/// The place of a redirect URL, whose path is /login/callback. kInvalidArgument: it is none, with why; plain
/// http is for this machine's loopback alone.
Result<BrowserPlace> browser_place_of(const std::string& redirect_url);

/// People sign in with a browser: the code flow with PKCE, and the sessions that come of it. It knows cookies
/// by their hashes alone. Thread-safe; nothing waits for the provider but threads of its own. Made by
/// make_shared.
class SignInFlow final : public SessionHolders,
                         public TokenHolders,
                         public std::enable_shared_from_this<SignInFlow> {
 public:
  static constexpr Duration kPendingLives = minutes(10);

  explicit SignInFlow(std::shared_ptr<TokenVerifier> tokens) : tokens_(std::move(tokens)) {}
  ~SignInFlow() override { stop(); }

  /// Null: nobody signs in. Sessions of another place, client or issuer end.
  void use(std::shared_ptr<const BrowserSignIn> how);
  /// Nobody is answered after it by the provider's word. Before the server goes.
  void stop() { workers_.stop(); }

  struct Started {
    std::string url;     ///< The provider's page.
    std::string cookie;  ///< For the browser that goes there.
  };
  /// Begins a sign-in of a browser at that address.
  void start(const std::string& address, Done<Started> done);

  /// The values that a browser brings from the provider. Untrusted.
  struct Brought {
    std::string_view cookie;  ///< Cookie that `start` gave; empty: it has none.
    std::string_view state, code;
    std::optional<std::string_view> issuer;  ///< RFC 9207.
    std::string_view error;                  ///< The provider's code for why there is none.
  };
  struct SignedIn {
    std::string session;        ///< For the cookie, and for nobody else.
    int64_t lives_seconds = 0;  ///< From now on.
    CallerPtr caller;
  };
  /// Ends the sign-in: once for one cookie, whatever comes of it. kUnauthenticated: the answer is to no
  /// sign-in of this browser, or is another provider's, or the token is not right. kPermissionDenied:
  /// somebody said no, or the person has no role here.
  void finish(const std::string& address, const Brought& brought, Done<SignedIn> done);

  std::shared_ptr<const BrowserPlace> place() const override;
  Answer<CallerPtr> holder_of_session(std::string_view id) const override;
  /// Ends a session, and what is open with it.
  void end(uint64_t session);

  // For the doorkeeper: all tokens, and what is open with sessions.
  Answer<CallerPtr> holder_of(std::string_view token) const override { return tokens_->holder_of(token); }
  Answer<std::shared_ptr<void>> while_valid(const CallerPtr& caller,
                                            std::function<void(const ApiError&)> end) const override;

  /// Forgets what has ended by now. Often.
  void sweep();
  std::size_t sessions() const;
  std::size_t pending() const;

 private:
  using Setup = std::shared_ptr<const BrowserSignIn>;
  Setup setup() const;
  std::optional<ApiError> begin(const std::string& party, PendingSignIn pending, std::string hash);
  Answer<PendingSignIn> take(const BrowserSignIn& how, const Brought& brought);
  Answer<SignedIn> exchange(const BrowserSignIn& how, const PendingSignIn& pending, const std::string& code,
                            bool named_issuer);
  Answer<SignedIn> open_session(const BrowserSignIn& how, std::string token, const CallerPtr& given);
  void end_all(const std::vector<uint64_t>& sessions) const;

  const std::shared_ptr<TokenVerifier> tokens_;
  const std::shared_ptr<OpenUnderKeys> open_ = std::make_shared<OpenUnderKeys>();  ///< By sessions' numbers.
  mutable std::mutex mutex_;                                                       // Guards all below.
  Setup how_;
  mutable BrowserSessions sessions_;
  PendingSignIns pending_;
  RecentTable<TokenBucket> started_{10'000};  ///< By party.
  TokenBucket exchanged_;
  uint64_t next_session_ = 1;
  SignInWorkers workers_;  ///< The last one: its threads end before the rest goes.
};

}  // namespace gpusched::api
