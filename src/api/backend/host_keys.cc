// HostBackend: API keys. Rights are decided here; whether it makes sense the engine says.
#include <algorithm>
#include <map>
#include <utility>

#include "access/access.h"
#include "api/backend/host_backend.h"
#include "api/backend/keys/own_keys.h"
#include "api/contract/names.h"
#include "api/contract/parse.h"
#include "api/views/state_views.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "sign/api_key.h"

namespace gpusched::api {
namespace {

using access::Action;
using access::Caller;
using access::Verdict;

/// Path of the tenant; that of the cluster has nothing in it.
TenantPosition position_of(const State& state, TenantId tenant) {
  const Tenant* const found = state.find_tenant(tenant);
  return found == nullptr ? TenantPosition{} : api::position_of(state, *found);
}

bool may(const State& state, const Caller& caller, Action action, TenantId home) {
  return decide_access(caller, action, position_of(state, home).resource()) == Verdict::kAllowed;
}

bool may_grant(const State& state, const Caller& giver, const Binding& binding) {
  return access::may_grant(giver, binding.role, position_of(state, binding.tenant).resource().tenant_path);
}

KeyView view_of(const State& state, const AccessKey& key, const KeyIndex& keys) {
  KeyInEffect in_force = in_effect(state, key);
  const bool alive = key.is_alive(std::max(state.last.at, wall_now()));
  return {.id = key.id,
          .tenant = key.tenant,
          .name = key.name,
          .holder = std::move(in_force.holder),
          .kind = key.kind,
          .state = in_force.revoked ? "revoked"
                   : alive          ? "active"
                                    : "expired",
          .prefix = key.prefix,
          .bindings = std::move(in_force.bindings),
          .unix_users = std::move(in_force.unix_users),
          .created_by = utf8_cleaned(key.created_by),
          .created_at = key.created_at,
          .expires_at = key.expires_at,
          .revoked_at = key.revoked_at,
          .revoked_by = utf8_cleaned(key.revoked_by),
          .last_used_at = keys.last_use(key.id),
          .secret = {}};
}

ApiError no_such_key(KeyId key, bool hidden = false) {
  ApiError error{ErrorKind::kKeyNotFound,
                 "no such key: " + key_name(key) + "; gpu-cli key list shows the existing ones", "key_id"};
  error.hidden = hidden;
  return error;
}

/// The requester's name as kept: the caller by its credential, and in brackets what it calls itself.
std::string asked_by(const Caller& caller, const std::string& by) {
  std::string who = caller.name;
  if (caller.kind != CallerKind::kOperator) who = std::string(to_string(caller.kind)) + " " + who;
  if (!by.empty()) who += " (" + by + ")";
  return std::string(utf8_cut(who, limits::kNameBytesMax));
}

/// The recorded person who calls; nothing: it is somebody else.
std::optional<PersonId> calling_person(const State& state, const Caller& caller) {
  const auto id = parse_key_id(caller.key_id);
  const AccessKey* const shown = id ? state.keys.find(*id) : nullptr;
  return shown == nullptr ? std::nullopt : person_of(*shown);
}

bool is_callers_own(const State& state, const Caller& caller, const AccessKey& key) {
  const std::optional<PersonId> person = person_of(key);
  return person && person == calling_person(state, caller);
}

/// Another key of the person who calls.
Answer<CreateKey> own_key_command(const State& state, const Caller& caller, const KeyRequest& request) {
  const Person* const person = state.people.find(*request.person);
  if (person == nullptr || !person->active)
    return ApiError{ErrorKind::kUserNotFound, "no such user; look at the list of users", "user_id"};
  const Time now = std::max(state.last.at, wall_now());
  std::size_t living = 0;
  state.keys.for_each_of(person->tenant, [&](const AccessKey& key) {
    living += key.is_alive(now) && maker_of(key) == person->id ? 1 : 0;
  });
  if (living >= kOwnKeysMax) {
    return ApiError{ErrorKind::kUnprocessable, "you have made " + std::to_string(living) +
                                                   " keys, and no more are allowed; revoke one first"};
  }
  CreateKey command{.tenant = person->tenant,
                    .name = own_key_name(person->id, request.name),
                    .kind = CallerKind::kPerson,
                    .prefix = {},
                    .hash = {},
                    .bindings = {{.tenant = person->tenant, .role = person->role}},
                    .unix_users = {},
                    .expires_at = request.expires_at,
                    .by = asked_by(caller, request.by)};
  if (request.expires_after.ns > 0) command.expires_at = wall_now() + request.expires_after;
  return command;
}

/// The key, when the caller may do that to it.
Answer<const AccessKey*> find_key(const State& state, const Caller& caller, Action action, KeyId id) {
  const AccessKey* const key = state.keys.find(id);
  if (key == nullptr) return no_such_key(id);
  if (!may(state, caller, Action::kSeeKey, key->tenant)) return no_such_key(id, true);
  if (!may(state, caller, action, key->tenant)) return not_allowed(caller, action, "do that to the key");
  return key;
}

ApiError not_to_give(const Caller& caller, const std::string& what, std::string field) {
  ApiError error = not_allowed(caller, Action::kBindRole, "give a key anything");
  error.message += ": " + what + " is more than it has itself";
  error.field = std::move(field);
  return error;
}

/// The home of a key to be made; none: the cluster.
Answer<TenantId> home_of(const State& state, const Caller& caller, const KeyRequest& request) {
  if (!request.of_cluster) {
    const std::string name =
        request.tenant.empty() ? tenant_name(access::home_tenant(caller)) : request.tenant;
    const Answer<const Tenant*> tenant = find_tenant(state, caller, Action::kCreateKey, name);
    if (!tenant) return tenant.error();
    return (*tenant)->id;
  }
  if (!may(state, caller, Action::kCreateKey, TenantId{}))
    return not_allowed(caller, Action::kCreateKey, "make a key");
  return TenantId{};
}

/// The binding that a role of a key means, when it makes sense and the caller may give and take it.
Answer<Binding> binding_of(const State& state, const Caller& caller, TenantId home, const RoleRequest& role,
                           const std::string& field) {
  Binding binding{.tenant = home, .role = role.role};
  if (!role.tenant.empty()) {
    const Answer<const Tenant*> tenant = find_tenant(state, caller, role.tenant);
    if (!tenant) {
      ApiError error = tenant.error();
      error.field = field;
      return error;
    }
    binding.tenant = (*tenant)->id;
  }
  if (!is_meaningful(binding)) {
    return ApiError{ErrorKind::kUnprocessable,
                    "the role " + std::string(to_string(role.role)) +
                        " is for the cluster as a whole: make a key of the cluster, without a tenant",
                    field};
  }
  if (!may_grant(state, caller, binding)) {
    const std::string where = binding.tenant.valid() ? " in " + tenant_name(binding.tenant) : "";
    return not_to_give(caller, "the role " + std::string(to_string(role.role)) + where, field);
  }
  return binding;
}

/// The request for a key of that person, as of any other.
Answer<KeyRequest> of_person(const State& state, const Caller& caller, KeyRequest request) {
  const Person* const person = state.people.find(*request.person);
  if (person == nullptr || !may(state, caller, Action::kCreateKey, person->tenant)) {
    ApiError error{ErrorKind::kUserNotFound, "no such user; look at the list of users", "user_id"};
    error.hidden = person != nullptr;
    return error;
  }
  request.name = key_name_of(person->id);
  request.kind = CallerKind::kPerson;
  request.of_cluster = !person->tenant.valid();
  request.tenant = request.of_cluster ? "" : tenant_name(person->tenant);
  request.roles = {{.role = person->role, .tenant = {}}};
  return request;
}

Answer<CreateKey> key_command(const State& state, const Caller& caller, const KeyRequest& request) {
  const Answer<TenantId> home = home_of(state, caller, request);
  if (!home) return home.error();
  CreateKey command{.tenant = *home,
                    .name = request.name,
                    .kind = request.kind,
                    .prefix = {},
                    .hash = {},
                    .bindings = {},
                    .unix_users = request.unix_users,
                    .expires_at = request.expires_at,
                    .by = asked_by(caller, request.by)};
  if (request.expires_after.ns > 0) command.expires_at = wall_now() + request.expires_after;
  for (std::size_t i = 0; i < request.roles.size(); ++i) {
    const std::string field = "roles[" + std::to_string(i) + "]";
    const Answer<Binding> binding = binding_of(state, caller, *home, request.roles[i], field);
    if (!binding) return binding.error();
    if (std::ranges::find(command.bindings, *binding) == command.bindings.end())
      command.bindings.push_back(*binding);
  }
  for (std::size_t i = 0; i < request.unix_users.size(); ++i) {
    if (!access::may_lend_user(caller, request.unix_users[i]))
      return not_to_give(caller, "the Unix user " + request.unix_users[i],
                         "unix_users[" + std::to_string(i) + "]");
  }
  return command;
}

}  // namespace

void HostBackend::propose_for_key(const CallerPtr& caller, Command command, KeyId key, std::string made,
                                  Done<KeyView> done) {
  propose(*caller, std::move(command), [this, key, made = std::move(made), done](Result<Decided> decided) {
    if (auto refused = refusal(decided)) return done(std::move(*refused));
    const KeyId id = key.valid() ? key : KeyId{decided->applied.first_id};
    // By then the doors know it, too.
    host_.observer().read(decided->sequence, [id, made, done, keys = keys_](const Observer::View& view) {
      const AccessKey* const found = view.state.keys.find(id);
      if (found == nullptr) return done(no_such_key(id));
      KeyView shown = view_of(view.state, *found, *keys);
      shown.secret = made;
      done(std::move(shown));
    });
  });
}

void HostBackend::create_key(const CallerPtr& caller, KeyRequest request, Done<KeyView> done) {
  if (sheds_read(done)) return;
  read([this, caller, request = std::move(request), done = std::move(done)](const Observer::View& view) {
    // A person who asks for a key of its own gets one, whatever else it may do.
    const bool own = request.person && request.person == calling_person(view.state, *caller);
    const Answer<KeyRequest> meant =
        request.person && !own ? of_person(view.state, *caller, request) : Answer<KeyRequest>(request);
    if (!meant) return done(meant.error());
    Answer<CreateKey> command =
        own ? own_key_command(view.state, *caller, request) : key_command(view.state, *caller, *meant);
    if (!command) return done(command.error());
    sign::NewApiKey made = sign::make_api_key();
    command->prefix = std::move(made.prefix);
    command->hash = Blob(made.hash);
    propose_for_key(caller, std::move(*command), KeyId{}, std::move(made.text), done);
  });
}

void HostBackend::list_keys(const CallerPtr& caller, KeyFilter filter, Done<KeyPage> done) {
  std::shared_ptr<void> place = place_for_scan(*caller, done);
  if (place == nullptr) return;
  scan_once([caller, place = std::move(place), filter = std::move(filter), done = std::move(done),
             keys = keys_](const Observer::View& view) {
    const State& state = view.state;
    TenantId home;
    if (!filter.tenant.empty()) {
      const Answer<const Tenant*> tenant = find_tenant(state, *caller, filter.tenant);
      if (!tenant) return done(tenant.error());
      home = (*tenant)->id;
    }
    std::map<TenantId, bool> seen;  // Many keys, few homes.
    KeyPage page;
    for (auto at = state.keys.behind(filter.after); at != state.keys.end(); ++at) {
      const AccessKey& key = at->second;
      if (home.valid() && key.tenant != home) continue;
      const auto [found, is_new] = seen.try_emplace(key.tenant);
      if (is_new) found->second = may(state, *caller, Action::kSeeKey, key.tenant);
      if (!found->second && !is_callers_own(state, *caller, key)) continue;
      KeyView shown = view_of(state, key, *keys);
      if (shown.state != "active" && !filter.with_ended) continue;
      if (std::cmp_equal(page.keys.size(), filter.limit)) {
        page.next = page.keys.back().id;
        break;
      }
      page.keys.push_back(std::move(shown));
    }
    done(std::move(page));
  });
}

void HostBackend::revoke_key(const CallerPtr& caller, KeyId key, const std::string& by, Done<KeyView> done) {
  if (sheds_read(done)) return;
  read([this, caller, key, by, done = std::move(done)](const Observer::View& view) {
    const AccessKey* const own = view.state.keys.find(key);
    if (own != nullptr && is_callers_own(view.state, *caller, *own)) {
      return propose_for_key(caller, RevokeKey{.key = key, .by = asked_by(*caller, by)}, key, {}, done);
    }
    const Answer<const AccessKey*> found = find_key(view.state, *caller, Action::kRevokeKey, key);
    if (!found) return done(found.error());
    // A caller that could not give a role takes it from nobody.
    for (const Binding& binding : (*found)->bindings) {
      if (!may_grant(view.state, *caller, binding))
        return done(not_to_give(*caller, "the role " + std::string(to_string(binding.role)), "key_id"));
    }
    propose_for_key(caller, RevokeKey{.key = key, .by = asked_by(*caller, by)}, key, {}, done);
  });
}

void HostBackend::bind_role(const CallerPtr& caller, KeyId key, RoleRequest role, bool taken,
                            const std::string& by, Done<KeyView> done) {
  if (sheds_read(done)) return;
  read([this, caller, key, role = std::move(role), taken, by,
        done = std::move(done)](const Observer::View& view) {
    const Answer<const AccessKey*> found = find_key(view.state, *caller, Action::kBindRole, key);
    if (!found) return done(found.error());
    const Answer<Binding> binding = binding_of(view.state, *caller, (*found)->tenant, role, "role");
    if (!binding) return done(binding.error());
    propose_for_key(caller,
                    BindRole{.key = key,
                             .tenant = binding->tenant,
                             .role = binding->role,
                             .taken = taken,
                             .by = asked_by(*caller, by)},
                    key, {}, done);
  });
}

}  // namespace gpusched::api
