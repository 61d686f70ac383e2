// HostBackend: people who are recorded. Rights are decided here; the rest is the engine's.
#include <memory>
#include <utility>

#include "access/access.h"
#include "api/backend/anonymous_limits.h"
#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/views/rights.h"
#include "api/views/state_views.h"

namespace gpusched::api {
namespace {

using access::Action;

PersonView person_view(const Person& person) {
  return {.id = person.id,
          .tenant = person.tenant,
          .email = person.email,
          .role = person.role,
          .active = person.active,
          .created_at = person.created_at,
          .updated_at = person.updated_at};
}

ApiError no_such_user() { return {ErrorKind::kUserNotFound, "no such user; look at the list of users"}; }

/// Whether the caller could give the role to a key in that home.
std::optional<ApiError> check_role(const State& state, const access::Caller& caller, const Binding& binding) {
  const Tenant* const home = state.find_tenant(binding.tenant);
  const TenantPosition position = home == nullptr ? TenantPosition{} : position_of(state, *home);
  if (!is_meaningful(binding) || access::may_grant(caller, binding.role, position.resource().tenant_path))
    return std::nullopt;
  ApiError error = not_allowed(caller, Action::kBindRole, "give a user a role");
  error.field = "role";
  return error;
}

/// `request`: without its password, which is in `hash`.
Answer<RecordPerson> person_command(const State& state, const access::Caller& caller, PersonId id,
                                    const PersonRequest& request, const std::optional<std::string>& hash) {
  const Person* const before = state.people.find(id);
  if (id.valid() && before == nullptr) return no_such_user();
  RecordPerson command{.person = id, .by = shown_by(caller, request.by)};
  Binding binding = before == nullptr ? Binding{.tenant = {}, .role = Role::kUser}
                                      : Binding{.tenant = before->tenant, .role = before->role};
  if (request.tenant || before == nullptr) {
    const Answer<const Tenant*> tenant =
        find_tenant(state, caller, request.tenant.value_or(tenant_name(access::home_tenant(caller))));
    if (!tenant) {
      ApiError error = tenant.error();
      error.field = "organization_id";
      return error;
    }
    command.given |= kPersonTenant;
    command.tenant = binding.tenant = (*tenant)->id;
  }
  if (request.role || before == nullptr) {
    command.given |= kPersonRole;
    command.role = binding.role = request.role.value_or(Role::kUser);
  }
  if (auto refused = check_role(state, caller, binding)) return std::move(*refused);
  if (request.email) {
    command.given |= kPersonEmail;
    command.email = *request.email;
  }
  if (hash) {
    command.given |= kPersonPassword;
    command.password = Blob(*hash);
  }
  if (request.active) {
    command.given |= kPersonActive;
    command.active = *request.active;
  }
  return command;
}

}  // namespace

void HostBackend::record_person(const CallerPtr& caller, PersonId person, PersonRequest request,
                                Done<PersonView> done) {
  const Action action = person.valid() ? Action::kUpdateUser : Action::kCreateUser;
  if (auto refused = refuse(*caller, action, "record users")) return done(std::move(*refused));
  if (!request.password) return record_hashed(caller, person, std::move(request), std::nullopt, done);
  std::string password = std::move(*request.password);
  request.password.reset();
  const bool taken = hasher_->hash(
      std::move(password), [this, caller, person, request, done](std::optional<std::string> hash) {
        if (hash) return record_hashed(caller, person, request, std::move(hash), done);
        done(ApiError{.kind = ErrorKind::kUnavailable,
                      .message = "the password could not be hashed; try again later",
                      .retry_after = seconds(1)});
      });
  if (taken) return;
  done(ApiError{.kind = ErrorKind::kThrottled,
                .message = "too many passwords wait to be hashed; try again later",
                .retry_after = seconds(1)});
}

void HostBackend::record_hashed(const CallerPtr& caller, PersonId person, PersonRequest request,
                                std::optional<std::string> hash, Done<PersonView> done) {
  if (sheds_read(done)) return;
  read([this, caller, person, request = std::move(request), hash = std::move(hash),
        done = std::move(done)](const Observer::View& view) {
    Answer<RecordPerson> command = person_command(view.state, *caller, person, request, hash);
    if (!command) return done(command.error());
    propose(*caller, std::move(*command), [this, done](Result<Decided> decided) {
      if (auto refused = refusal(decided)) return done(std::move(*refused));
      const PersonId id{decided->applied.first_id};
      host_.observer().read(decided->sequence, [id, done](const Observer::View& then) {
        const Person* const found = then.state.people.find(id);
        if (found == nullptr) return done(no_such_user());
        done(person_view(*found));
      });
    });
  });
}

void HostBackend::list_people(const CallerPtr& caller, int64_t skip, int64_t limit,
                              Done<std::vector<PersonView>> done) {
  if (auto refused = refuse(*caller, Action::kSeeUser, "see users")) return done(std::move(*refused));
  std::shared_ptr<void> place = place_for_scan(*caller, done);
  if (place == nullptr) return;
  scan_once([place = std::move(place), skip, limit, done = std::move(done)](const Observer::View& view) {
    std::vector<PersonView> out;
    int64_t before = 0;
    for (const auto& [id, person] : view.state.people) {
      if (before++ < skip) continue;
      if (std::cmp_greater_equal(out.size(), limit)) break;
      out.push_back(person_view(person));
    }
    done(std::move(out));
  });
}

}  // namespace gpusched::api
