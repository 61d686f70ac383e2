#include "api/backend/tokens/sign_in_flow.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/contract/token.h"
#include "api/limits/address_group.h"
#include "base/check.h"
#include "base/net/base64url.h"
#include "sign/api_key.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kSecretLetters = 43;
constexpr std::size_t kCodeBytesMax = 4'096;
/// A person needs one or two; a program that fills tables many.
constexpr Rate kStartsOfParty{.per_second = 0.5, .burst = 20};
/// Requests to the provider, of all people together.
constexpr Rate kExchanges{.per_second = 10, .burst = 50};
constexpr std::string_view kCallbackPath = "/login/callback";

Time wall_time() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::system_clock::now().time_since_epoch())
              .count()};
}

/// 256 random bits.
std::string new_secret() { return base64url_encoded(random_bytes(kSecretBytes)); }

ApiError is_off() {
  return {ErrorKind::kNotFound,
          "nobody signs in here with a browser: `browser:` below `login:` in the file of "
          "api.jwt_rules_file switches it on"};
}
ApiError not_ours(const std::string& why) {
  return {ErrorKind::kUnauthenticated, why + "; nothing was done, sign in again from the beginning"};
}
ApiError has_ended() {
  return {ErrorKind::kUnauthenticated,
          "this browser's session has ended, or the scheduler does not know it; sign in again at /login"};
}
ApiError is_late() {
  return {.kind = ErrorKind::kUnavailable,
          .message = "the provider of identities did not answer in time; sign in again in a minute",
          .retry_after = seconds(10)};
}
ApiError too_often(const char* whose, Duration wait) {
  return {.kind = ErrorKind::kRateLimited,
          .message = std::string("too many sign-ins ") + whose + "; wait a moment, then sign in again",
          .retry_after = std::max(wait, seconds(1))};
}

/// Text that may hold words of the provider's, for people: printable, and no longer than a sentence or two.
/// The whole text is in the log.
std::string shown_text(std::string_view text) {
  constexpr std::size_t kBytesMax = 400;
  std::string out(text.substr(0, kBytesMax));
  std::ranges::replace_if(out, [](char c) { return c < ' ' || c >= '\x7f'; }, '?');
  if (text.size() > kBytesMax) out += "...";
  return out;
}

/// The provider's code for people, who may be shown another text than that of a provider.
std::string shown_code(std::string_view code) { return shown_text(code.substr(0, 64)); }

ApiError of_provider(const Error& error) {
  const bool is_refused =
      error.code == ErrorCode::kUnauthenticated || error.code == ErrorCode::kPermissionDenied;
  return {.kind = is_refused ? ErrorKind::kUnauthenticated : ErrorKind::kUnavailable,
          .message = shown_text(error.message) + "; sign in again, and tell an operator if it stays so",
          .retry_after = is_refused ? Duration{} : seconds(10)};
}

}  // namespace

Result<BrowserPlace> browser_place_of(const std::string& redirect_url) {
  const auto wrong = [](const std::string& why) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "the redirect URL " + why +
                            "; write the address that browsers have for this scheduler, such as "
                            "https://gpu.example.com:8080/login/callback"};
  };
  const std::size_t scheme = redirect_url.find("://");
  const bool https = redirect_url.starts_with("https://");
  if (!https && !redirect_url.starts_with("http://")) return wrong("is neither https nor http");
  const std::size_t slash = redirect_url.find('/', scheme + 3);
  if (slash == std::string::npos || redirect_url.substr(slash) != kCallbackPath)
    return wrong("has not the path /login/callback");
  std::string host = redirect_url.substr(scheme + 3, slash - scheme - 3);
  const bool usable = !host.empty() && std::ranges::all_of(host, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == ':' || c == '[' ||
           c == ']';
  });
  if (!usable) return wrong("has no host of lower-case letters, digits, '-' and '.', with or without a port");
  const std::string_view usual = https ? ":443" : ":80";
  if (host.ends_with(usual)) host.resize(host.size() - usual.size());
  const std::string_view name = host.starts_with('[') ? std::string_view(host).substr(0, host.find(']') + 1)
                                                      : std::string_view(host).substr(0, host.find(':'));
  if (!https && !is_loopback(name))
    return wrong(
        "is plain http, over which others can take the cookie, and its host is not this machine's "
        "loopback");
  return BrowserPlace{.origin = (https ? "https://" : "http://") + host, .host = host, .is_https = https};
}

SignInFlow::Setup SignInFlow::setup() const {
  const std::lock_guard lock(mutex_);
  return how_;
}

std::shared_ptr<const BrowserPlace> SignInFlow::place() const {
  const Setup how = setup();
  return how == nullptr ? nullptr : std::shared_ptr<const BrowserPlace>(how, &how->place);
}

void SignInFlow::use(std::shared_ptr<const BrowserSignIn> how) {
  std::vector<uint64_t> gone;
  {
    const std::lock_guard lock(mutex_);
    const bool stay = how_ != nullptr && how != nullptr && same_sessions(*how_, *how);
    if (!stay) {
      gone = sessions_.clear();
      pending_ = {};
    }
    how_ = std::move(how);
  }
  end_all(gone);
}

std::optional<ApiError> SignInFlow::begin(const std::string& party, PendingSignIn pending, std::string hash) {
  const Time now = steady_time();
  const std::lock_guard lock(mutex_);
  if (const auto wait = started_.at(party).value.take(kStartsOfParty, now))
    return too_often("from this address", *wait);
  pending.party = party;
  pending.ends_at = now + kPendingLives;
  pending_.add(std::move(hash), std::move(pending));
  return std::nullopt;
}

void SignInFlow::start(const std::string& address, Done<Started> done) {
  const Setup how = setup();
  if (how == nullptr) return done(is_off());
  const std::string party = address_group(address);
  std::string cookie = new_secret();
  PendingSignIn pending{.state = new_secret(), .nonce = new_secret(), .verifier = new_secret()};
  if (auto refused = begin(party, pending, sign::hash_api_secret(cookie))) return done(*refused);
  // Weak: who waits for work must not keep the flow, which waits for the work.
  auto refused = workers_.post(party, [how, pending = std::move(pending), cookie, done](bool in_time) {
    if (!in_time) return done(is_late());
    Result<std::string> url = how->provider->page_for(pending.state, pending.nonce, pending.verifier);
    if (!url.ok()) return done(of_provider(url.error()));
    done(Started{.url = std::move(*url), .cookie = cookie});
  });
  if (refused) done(*refused);
}

Answer<PendingSignIn> SignInFlow::take(const BrowserSignIn& how, const Brought& brought) {
  const ApiError another = not_ours(
      "what this browser brought is not the answer to a sign-in that it began here: it was begun in another "
      "browser, more than ten minutes ago, or is finished already");
  if (brought.cookie.size() != kSecretLetters) return another;
  const std::string hash = sign::hash_api_secret(brought.cookie);
  const Time now = steady_time();
  const std::lock_guard lock(mutex_);
  const PendingSignIn* const found = pending_.find(hash, now);
  // A wrong state ends nothing: another site can lead the browser here as often as it likes.
  if (found == nullptr || !same_secret(found->state, brought.state)) return another;
  if (brought.issuer && *brought.issuer != how.issuer) {
    pending_.take(hash, now);
    return not_ours("what this browser brought is another provider's answer (its `iss` is not " + how.issuer +
                    ")");
  }
  if (const auto wait = exchanged_.take(kExchanges, now)) return too_often("of all people", *wait);
  return *pending_.take(hash, now);
}

void SignInFlow::finish(const std::string& address, const Brought& brought, Done<SignedIn> done) {
  const Setup how = setup();
  if (how == nullptr) return done(is_off());
  Answer<PendingSignIn> pending = take(*how, brought);
  if (!pending) return done(pending.error());
  if (!brought.error.empty())
    return done(ApiError{ErrorKind::kPermissionDenied,
                         brought.error == "access_denied"
                             ? "the sign-in was denied at the provider; sign in again if that was a mistake"
                             : "the provider refuses the sign-in (" + shown_code(brought.error) +
                                   "); sign in again, and tell an operator if it stays so"});
  if (brought.code.empty() || brought.code.size() > kCodeBytesMax)
    return done(not_ours("the provider's answer has no code"));
  auto refused =
      workers_.post(address_group(address), [self = weak_from_this(), how, pending = std::move(*pending),
                                             code = std::string(brought.code),
                                             named = brought.issuer.has_value(), done](bool in_time) {
        const std::shared_ptr<SignInFlow> flow = self.lock();
        if (!in_time || flow == nullptr) return done(is_late());
        done(flow->exchange(*how, pending, code, named));
      });
  if (refused) done(*refused);
}

Answer<SignInFlow::SignedIn> SignInFlow::exchange(const BrowserSignIn& how, const PendingSignIn& pending,
                                                  const std::string& code, bool named_issuer) {
  Result<std::string> token = how.provider->id_token_for(code, pending.verifier, named_issuer);
  if (!token.ok()) return of_provider(token.error());
  const Answer<CallerPtr> holder = tokens_->holder_of_id_token(*token, how.client_id, pending.nonce);
  if (!holder && holder.error().kind == ErrorKind::kUnauthenticated &&
      holder.error().message == unknown_credential().message)
    return not_ours("the provider's id token is refused: nobody signed it whose key the scheduler has");
  if (!holder) return holder.error();
  return open_session(how, std::move(*token), *holder);
}

Answer<SignInFlow::SignedIn> SignInFlow::open_session(const BrowserSignIn& how, std::string token,
                                                      const CallerPtr& given) {
  const Time now = wall_time();
  SignedIn out{.session = new_secret(), .lives_seconds = (given->ends_at - now).ns / seconds(1).ns};
  std::vector<uint64_t> gone;
  {
    const std::lock_guard lock(mutex_);
    if (how_ == nullptr || !same_sessions(*how_, how))
      return not_ours("where people sign in was changed meanwhile");
    auto own = std::make_shared<access::Caller>(*given);
    own->session = next_session_++;
    out.caller = own;
    gone = sessions_.add(sign::hash_api_secret(out.session),
                         {.number = own->session,
                          .token = std::make_shared<const std::string>(std::move(token)),
                          .subject = given->name,
                          .ends_at = given->ends_at,
                          .given = given,
                          .caller = out.caller});
  }
  end_all(gone);
  return out;
}

Answer<CallerPtr> SignInFlow::holder_of_session(std::string_view id) const {
  if (id.size() != kSecretLetters) return has_ended();
  const std::string hash = sign::hash_api_secret(id);
  std::shared_ptr<const std::string> token;
  std::string client_id;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const BrowserSession* const found = sessions_.find(hash);
    if (found == nullptr || how_ == nullptr) return has_ended();
    token = found->token;
    number = found->number;
    client_id = how_->client_id;
  }
  const Answer<CallerPtr> given = tokens_->holder_of_id_token(*token, client_id);
  std::vector<uint64_t> gone;
  {
    const std::lock_guard lock(mutex_);
    BrowserSession* const found = sessions_.find(hash);
    if (found == nullptr || found->number != number) return has_ended();
    if (given) {
      if (found->given == *given) return found->caller;
      auto own = std::make_shared<access::Caller>(**given);
      own->session = number;
      found->given = *given;
      found->caller = own;
      return found->caller;
    }
    // A revoked or expired token is over; a role may come back, and so may the provider's keys.
    if (given.error().kind == ErrorKind::kUnauthenticated && sessions_.remove(hash)) gone.push_back(number);
  }
  end_all(gone);
  if (gone.empty()) return given.error();
  return has_ended();
}

void SignInFlow::end_all(const std::vector<uint64_t>& sessions) const {
  for (const uint64_t session : sessions)
    open_->look_at(KeyId{session}, [](const OpenUnderKeys::Open&) { return std::optional(has_ended()); });
}

void SignInFlow::end(uint64_t session) {
  {
    const std::lock_guard lock(mutex_);
    sessions_.remove_number(session);
  }
  end_all({session});
}

Answer<std::shared_ptr<void>> SignInFlow::while_valid(const CallerPtr& caller,
                                                      std::function<void(const ApiError&)> end) const {
  if (caller->session == 0) return tokens_->while_valid(caller, std::move(end));
  // It ends with the session, or with what its token gives: whichever is first.
  auto once = [told = std::make_shared<std::atomic<bool>>(false), end = std::move(end)](const ApiError& why) {
    if (!told->exchange(true)) end(why);
  };
  std::shared_ptr<void> with_session = open_->add(
      KeyId{caller->session}, {.caller = caller, .action = std::nullopt, .expires_at = {}, .end = once});
  {
    const std::lock_guard lock(mutex_);
    if (!sessions_.is_there(caller->session)) return has_ended();
  }
  Answer<std::shared_ptr<void>> with_token = tokens_->while_valid(caller, once);
  if (!with_token) return with_token.error();
  using Both = std::pair<std::shared_ptr<void>, std::shared_ptr<void>>;
  return std::shared_ptr<void>(std::make_shared<Both>(std::move(with_session), std::move(*with_token)));
}

void SignInFlow::sweep() {
  std::vector<uint64_t> gone;
  {
    const std::lock_guard lock(mutex_);
    gone = sessions_.sweep(wall_time());
    pending_.sweep(steady_time());
  }
  end_all(gone);
}

std::size_t SignInFlow::sessions() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}
std::size_t SignInFlow::pending() const {
  const std::lock_guard lock(mutex_);
  return pending_.size();
}

}  // namespace gpusched::api
