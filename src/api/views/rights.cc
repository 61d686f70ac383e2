#include "api/views/rights.h"

#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "base/check.h"

namespace gpusched::api {
namespace {

using access::Action;
using access::Caller;
using access::CallerKind;
using access::Verdict;

bool is_anonymous(const Caller& caller) { return caller.kind == CallerKind::kAnonymous; }

/// A view of the state. Jobs of before feature level 9 bear no owner but the mark of callers without a
/// credential; all others of them are nobody's.
access::Owner owner_of(const State& state, const Job& job) {
  if (const JobOwner* owner = state.owners.at(job.owner)) return {.kind = owner->kind, .name = owner->name};
  if (is_never_root(job.spec.view())) return {.kind = CallerKind::kAnonymous};
  return {};
}

std::string refused_to(const Caller& caller, Action action) {
  return std::string(to_string(caller.kind)) + " " + caller.name + " may not " +
         std::string(to_string(action));
}

/// The words for what is done to a job; empty: for something else.
std::string_view deed_of(Action action) {
  switch (action) {
    case Action::kCancelJob:
      return "cancel it";
    case Action::kHoldJob:
      return "hold or release it";
    case Action::kRequeueJob:
      return "requeue it";
    case Action::kUpdateJob:
      return "change it";
    case Action::kReadJobScript:
      return "read its script";
    case Action::kReadJobOutput:
      return "read its output";
    case Action::kReadJobFile:
      return "read its files";
    case Action::kEnterJob:
      return "enter it";
    default:
      return {};
  }
}

}  // namespace

Proposer proposer_of(const Caller& caller) {
  return {.kind = caller.kind,
          .name = caller.name.substr(0, limits::kNameBytesMax),
          .key_id = caller.key_id.substr(0, limits::kNameBytesMax)};
}

TenantPosition position_of(const State& state, const Tenant& tenant) {
  TenantPosition position{.is_open = is_open(tenant)};
  for (const Tenant* at = &tenant; at != nullptr; at = state.find_tenant(at->parent)) {
    CHECK(position.depth < position.path.size());
    position.path[position.depth++] = at->id;
  }
  return position;
}

void TenantPositions::fill(const State& state) {
  for (const auto& [id, tenant] : state.tenants) look_at(state, id);
}

void TenantPositions::observe(const State& state, const Changes& changes) {
  for (const Event& event : changes.events) {
    if (const auto* created = std::get_if<TenantCreated>(&event)) look_at(state, created->tenant->id);
    if (const auto* updated = std::get_if<TenantUpdated>(&event)) look_at(state, updated->change->tenant);
  }
}

std::optional<TenantPosition> TenantPositions::find(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  const auto found = positions_.find(tenant);
  return found == positions_.end() ? std::nullopt : std::optional(found->second);
}

void TenantPositions::look_at(const State& state, TenantId id) {
  const Tenant* tenant = state.find_tenant(id);
  const std::lock_guard lock(mutex_);
  if (tenant != nullptr) {
    positions_[id] = position_of(state, *tenant);
  } else {
    positions_.erase(id);
  }
}

bool may_always(const Caller& caller, Action action) {
  // An action allowed on what is nobody's, in no tenant, is allowed on all.
  return decide_access(caller, action, {}) == Verdict::kAllowed;
}

Verdict decide(const State& state, const Caller& caller, Action action, const Tenant& tenant) {
  return decide_access(caller, action, position_of(state, tenant).resource());
}

Verdict decide(const State& state, const Caller& caller, Action action, const Job& job) {
  return decide_access(caller, action,
                       position_of(state, state.tenant_at(job.tenant)).resource(owner_of(state, job)));
}

bool sees_jobs_of(const State& state, const Caller& caller, TenantId tenant) {
  const Tenant* const found = state.find_tenant(tenant);
  return found != nullptr && decide(state, caller, Action::kSeeJob, *found) == Verdict::kAllowed;
}

std::string owner_text(const State& state, const Job& job) {
  const access::Owner owner = owner_of(state, job);
  return owner_text(owner.kind, owner.name);
}

std::string owner_text(CallerKind kind, std::string_view name) {
  if (kind == CallerKind::kAnonymous) return std::string(to_string(kind));
  return name.empty() ? "" : std::string(to_string(kind)) + " " + std::string(name);
}

void conceal(const State& state, const Caller& caller, const Job& job, JobView& view) {
  if (may_always(caller, Action::kReadJobScript)) return;
  const TenantPosition position = position_of(state, state.tenant_at(job.tenant));
  const access::Resource resource = position.resource(owner_of(state, job));
  if (decide_access(caller, Action::kReadJobScript, resource) != Verdict::kAllowed) view.spec = {};
  if (decide_access(caller, Action::kDescribeJob, resource) == Verdict::kAllowed) return;
  view.name.clear();
  view.message.clear();
  view.submitted_by.clear();
  view.owner.clear();
  view.watch_detail.clear();
  view.move_detail.clear();
}

ApiError not_allowed(const Caller& caller, Action action, std::string_view what) {
  if (!is_anonymous(caller)) return {ErrorKind::kPermissionDenied, refused_to(caller, action)};
  return {ErrorKind::kPermissionDenied,
          "callers without a credential may not " + std::string(what) + std::string(kHowToHaveOne)};
}

ApiError not_allowed(const State& state, const Caller& caller, Action action, const Job& job) {
  const std::string name = job_name(job.id);
  if (!is_anonymous(caller)) {
    const JobOwner* const owner = state.owners.at(job.owner);
    const bool is_shown = decide(state, caller, Action::kDescribeJob, job) == Verdict::kAllowed;
    const std::string_view deed = deed_of(action);
    if (owner == nullptr || !is_shown || deed.empty())
      return {ErrorKind::kPermissionDenied, refused_to(caller, action) + " of " + name};
    return {ErrorKind::kPermissionDenied, name + " belongs to " + owner->name +
                                              ": only its owner"
                                              " or an administrator can " +
                                              std::string(deed)};
  }
  return {ErrorKind::kPermissionDenied,
          name + " was submitted with a credential; callers without one see only its state" +
              std::string(kHowToHaveOne)};
}

ApiError no_such_tenant(const Caller& caller, std::string_view tenant) {
  const std::string name(tenant.substr(0, 64));
  if (is_anonymous(caller)) {
    return {ErrorKind::kTenantNotFound,
            "no such tenant, or none that callers without a credential may use: " + name +
                "; create it first, use default, or send the shared token",
            "tenant_id"};
  }
  const bool may_create = may_always(caller, Action::kCreateTenant);
  return {ErrorKind::kTenantNotFound,
          "no such tenant: " + name +
              (may_create ? "; create it first, or use default" : "; gpu-cli tenant list shows yours"),
          "tenant_id"};
}

std::optional<ApiError> refuse(const Caller& caller, Action action, std::string_view what) {
  CHECK(!has_walls(access::row_of(action).subject));
  if (may_always(caller, action)) return std::nullopt;
  return not_allowed(caller, action, what);
}

}  // namespace gpusched::api
