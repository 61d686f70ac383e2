#include "api/backend/tokens/token_verifier.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <variant>

#include "api/contract/token.h"
#include "api/views/rights.h"
#include "api/views/state_views.h"
#include "base/check.h"
#include "base/limits.h"
#include "sign/api_key.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kUnixUserBytesMax = 32;
constexpr std::string_view kEveryTenant = "*";
const std::vector<std::string> kNonce = {"nonce"}, kAuthorizedParty = {"azp"};

int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The tenant that a rule names. A name is that of a tenant at the top, which only admins make and rename,
/// and not of one that callers without a credential may use, and may have made.
TenantId tenant_of(const State& state, const std::string& text) {
  const auto is_there = [](const Tenant* tenant) { return tenant != nullptr && !tenant->deleted; };
  if (const std::optional<TenantId> id = parse_tenant_id(text))
    return is_there(state.find_tenant(*id)) ? *id : TenantId{};
  for (const TenantId id : state.tenants_named(text)) {
    const Tenant* const tenant = state.find_tenant(id);
    if (is_there(tenant) && !tenant->parent.valid() && !is_open(*tenant)) return id;
  }
  return {};
}

bool is_of_tenants(const Event& event) {
  return std::holds_alternative<TenantCreated>(event) || std::holds_alternative<TenantUpdated>(event) ||
         std::holds_alternative<TenantDeleted>(event);
}

bool is_revoked(const JwtRules& rules, const sign::JwtClaims& claims) {
  return std::ranges::any_of(rules.revoked, [&](const JwtRevocation& revoked) {
    if (!revoked.subject.empty() && revoked.subject != claims.subject()) return false;
    if (!revoked.id.empty() && revoked.id != claims.id()) return false;
    return revoked.issued_before == 0 || claims.issued_at().value_or(0) < revoked.issued_before;
  });
}

template <typename T>
void add_once(std::vector<T>& to, const T& value) {
  if (std::ranges::find(to, value) == to.end()) to.push_back(value);
}

/// Roles and users of all rules that the claims match. Nothing: no rule gives a role.
std::optional<access::Caller> caller_of(const sign::JwtClaims& claims, const JwtTrust& trust,
                                        const std::vector<TenantId>& tenants) {
  // The issuer has no '#': whatever a subject is, no other issuer's has this name, and nobody's key or Unix
  // user.
  access::Caller caller{.kind = CallerKind::kPerson,
                        .name = "jwt:" + trust.expected.issuer + "#" + claims.subject()};
  for (std::size_t i = 0; i < trust.rules.rules.size(); ++i) {
    const JwtRule& rule = trust.rules.rules[i];
    if (!claims.has(rule.claim, rule.value)) continue;
    const bool names_one = !rule.tenant.empty() && rule.tenant != kEveryTenant;
    const Binding binding{.tenant = tenants[i], .role = rule.role};
    if ((names_one && !binding.tenant.valid()) || !is_meaningful(binding)) continue;
    add_once(caller.bindings, binding);
    for (const std::string& user : rule.unix_users) add_once(caller.unix_users, user);
  }
  if (caller.bindings.empty()) return std::nullopt;
  if (!trust.rules.unix_user_claim.empty()) {
    const std::optional<std::string> user = claims.text(trust.rules.unix_user_claim);
    if (user && is_safe_unix_user(*user)) add_once(caller.unix_users, *user);
  }
  return caller;
}

ApiError has_expired() {
  return {ErrorKind::kUnauthenticated,
          "the token with which this was opened has expired; get another one and ask again"};
}

ApiError refused(std::string why) {
  return {ErrorKind::kUnauthenticated, "the token is refused: " + std::move(why)};
}

}  // namespace

bool is_safe_unix_user(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  const auto is_inner = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= kUnixUserBytesMax && is_letter(name.front()) &&
         std::ranges::all_of(name, is_inner) && name != "root";
}

TokenVerifier::TokenVerifier() = default;

void TokenVerifier::attach(Host& host) {
  host_ = &host;
  host.observer().add_listener(
      [self = shared_from_this()](const Observer::View& view, const Changes& changes) {
        self->observe(view.state, changes);
      });
  use(known_->trust);
}

void TokenVerifier::observe(const State& state, const Changes& changes) {
  newest_ns_.store(changes.last.at.ns, std::memory_order_relaxed);
  if (std::ranges::any_of(changes.events, is_of_tenants)) resolve(state);
}

template <typename Change>
void TokenVerifier::change(const Change& what) {
  bool gives_the_same = false;
  {
    const std::lock_guard lock(mutex_);
    auto fresh = std::make_shared<Known>(*known_);
    what(*fresh);
    gives_the_same = give_the_same(*known_, *fresh);
    known_ = std::move(fresh);
    generation_.fetch_add(1);
  }
  if (gives_the_same) return;
  end_all();
  end_again_.store(true);
}

bool TokenVerifier::give_the_same(const Known& a, const Known& b) {
  if (a.trust == nullptr || b.trust == nullptr) return a.trust == b.trust;
  return *a.trust == *b.trust && a.tenants == b.tenants;
}

void TokenVerifier::end_all() const {
  open_->look_at(KeyId{}, [](const OpenUnderKeys::Open&) {
    return std::optional(ApiError{ErrorKind::kUnauthenticated,
                                  "what tokens of the provider of identities give was changed; ask again"});
  });
}

void TokenVerifier::end_expired() const {
  if (end_again_.exchange(false)) end_all();
  open_->expire(Time{now_seconds() * seconds(1).ns}, [](KeyId) { return has_expired(); });
}

Answer<std::shared_ptr<void>> TokenVerifier::while_valid(const CallerPtr& caller,
                                                         std::function<void(const ApiError&)> end) const {
  std::shared_ptr<void> token = open_->add(
      KeyId{},
      {.caller = caller, .action = std::nullopt, .expires_at = caller->ends_at, .end = std::move(end)});
  if (caller->ends_at.ns <= now_seconds() * seconds(1).ns) return has_expired();
  return token;
}

std::optional<SignIn> TokenVerifier::sign_in() const {
  std::shared_ptr<const Known> known;
  {
    const std::lock_guard lock(mutex_);
    known = known_;
  }
  if (known->trust == nullptr || known->trust->rules.login.client_id.empty()) return std::nullopt;
  const JwtLogin& login = known->trust->rules.login;
  const bool is_for_client = known->trust->expected.audience == login.client_id;
  return SignIn{.issuer = known->trust->expected.issuer,
                .client_id = login.client_id,
                .scopes = login.scopes,
                .sends_access_token = login.token == JwtLogin::Token::kAccess ||
                                      (login.token == JwtLogin::Token::kByAudience && !is_for_client)};
}

void TokenVerifier::resolve(const State& state) {
  change([&state](Known& known) {
    known.tenants.clear();
    if (known.trust == nullptr) return;
    for (const JwtRule& rule : known.trust->rules.rules)
      known.tenants.push_back(
          rule.tenant.empty() || rule.tenant == kEveryTenant ? TenantId{} : tenant_of(state, rule.tenant));
  });
}

void TokenVerifier::use(std::shared_ptr<const JwtTrust> trust) {
  change([&trust](Known& known) {
    const bool is_the_same = known.trust != nullptr && trust != nullptr && *known.trust == *trust;
    known.trust = trust;
    if (!is_the_same) known.tenants.assign(trust == nullptr ? 0 : trust->rules.rules.size(), TenantId{});
  });
  if (host_ == nullptr) return;
  // Where the observer has ended, the promise ends with the query.
  auto resolved = std::make_shared<std::promise<void>>();
  const std::future<void> known = resolved->get_future();
  host_->observer().read(0, [this, resolved = std::move(resolved)](const Observer::View& view) {
    resolve(view.state);
    resolved->set_value();
  });
  known.wait();
}

void TokenVerifier::use_keys(std::shared_ptr<const sign::JwtKeySet> keys) {
  change([&keys](Known& known) { known.keys = std::move(keys); });
}

int64_t TokenVerifier::now_seconds() const {
  return std::max(wall_ns(), newest_ns_.load(std::memory_order_relaxed)) / 1'000'000'000;
}

Answer<CallerPtr> TokenVerifier::holder_of(std::string_view token) const { return find_holder(token, {}); }

Answer<CallerPtr> TokenVerifier::holder_of_id_token(std::string_view token, const std::string& client_id,
                                                    std::string_view nonce) const {
  CHECK(!client_id.empty());
  return find_holder(token, {.client_id = client_id, .nonce = nonce});
}

Answer<CallerPtr> TokenVerifier::find_holder(std::string_view token, const IdToken& of) const {
  if (token.size() > sign::kJwtBytesMax || std::ranges::count(token, '.') != 2) return unknown_credential();
  std::shared_ptr<const Known> known;
  uint64_t generation = 0;
  {
    const std::lock_guard lock(mutex_);
    known = known_;
    generation = generation_.load();
  }
  if (known->trust == nullptr) return unknown_credential();
  const int64_t now = now_seconds();
  // An id token is remembered apart: as a bearer's it may be for another audience. No header has a line's
  // end.
  std::string hash = sign::hash_api_secret(
      of.client_id.empty() ? std::string(token) : std::string(of.client_id) + "\n" + std::string(token));
  if (of.nonce.empty()) {
    if (CallerPtr holder = recall(hash, now, generation)) return holder;
  }
  int64_t ends_at = 0;
  Answer<CallerPtr> holder = verify(token, *known, of, now, ends_at);
  if (holder) remember(std::move(hash), {.holder = *holder, .ends_at = ends_at, .generation = generation});
  return holder;
}

Answer<CallerPtr> TokenVerifier::verify(std::string_view token, const Known& known, const IdToken& of,
                                        int64_t now, int64_t& ends_at) const {
  if (known.keys == nullptr) {
    if (unknown_key_) unknown_key_();
    return ApiError{
        .kind = ErrorKind::kUnavailable,
        .message =
            "tokens cannot be checked: the scheduler has no keys of the provider of identities at the "
            "moment; try again soon, and see the scheduler's log for why",
        .retry_after = seconds(1)};
  }
  sign::JwtExpectation expected = known.trust->expected;
  if (!of.client_id.empty()) expected.audience = of.client_id;
  const sign::JwtOutcome outcome = sign::verify_jwt(token, *known.keys, expected, now);
  if (outcome.fault == sign::JwtFault::kUnknownKey && unknown_key_) unknown_key_();
  if (outcome.fault == sign::JwtFault::kClaims)
    return refused(outcome.why + "; get another one from " + expected.issuer);
  if (!outcome.claims) return unknown_credential();
  const sign::JwtClaims& claims = *outcome.claims;
  if (!of.nonce.empty() && !same_secret(claims.text(kNonce).value_or(""), of.nonce))
    return refused("it belongs to another sign-in (its nonce is not the one that was sent)");
  if (!of.client_id.empty() &&
      claims.text(kAuthorizedParty).value_or(std::string(of.client_id)) != of.client_id)
    return refused("it was given to another client (azp)");
  if (is_revoked(known.trust->rules, claims))
    return refused("it was revoked here; get another one from " + expected.issuer);
  std::optional<access::Caller> caller = caller_of(claims, *known.trust, known.tenants);
  if (!caller) {
    return ApiError{
        ErrorKind::kPermissionDenied,
        "no role for this token: none of its claims matches a rule for a tenant that exists; an operator "
        "gives roles in the file of the setting api.jwt_rules_file"};
  }
  if (caller->name.size() > limits::kNameBytesMax)
    return refused("its subject (sub) is too long: with its issuer it has more than " +
                   std::to_string(limits::kNameBytesMax) + " bytes");
  ends_at = claims.expires_at() + std::clamp<int64_t>(expected.leeway_seconds, 0, sign::kJwtLeewayMaxSeconds);
  caller->ends_at = Time{std::min(ends_at, limits::kTimeMax.ns / seconds(1).ns) * seconds(1).ns};
  return std::make_shared<const access::Caller>(std::move(*caller));
}

CallerPtr TokenVerifier::recall(const std::string& hash, int64_t now, uint64_t generation) const {
  Shard& shard = shard_of(hash);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.entries.find(hash);
  const bool holds =
      found != shard.entries.end() && found->second.generation == generation && now < found->second.ends_at;
  return holds ? found->second.holder : nullptr;
}

void TokenVerifier::remember(std::string hash, Remembered entry) const {
  Shard& shard = shard_of(hash);
  const std::lock_guard lock(shard.mutex);
  const auto [at, is_new] = shard.entries.insert_or_assign(hash, std::move(entry));
  if (!is_new) return;
  shard.order.push_back(std::move(hash));
  if (shard.order.size() <= kRememberedMax / kShards) return;
  shard.entries.erase(shard.order.front());
  shard.order.pop_front();
}

}  // namespace gpusched::api
