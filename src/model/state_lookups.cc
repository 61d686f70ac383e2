#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "model/state.h"

namespace gpusched {

const Tenant* State::find_tenant_named(std::string_view name) const {
  const std::span<const TenantId> ids = tenants_named(name);
  return ids.empty() ? nullptr : find_tenant(ids.front());
}

std::span<const TenantId> State::tenants_named(std::string_view name) const {
  const auto it = tenants_by_name_.find(name);
  if (it == tenants_by_name_.end()) return {};
  return it->second;
}

const Node* State::find_node(NodeId id) const {
  const auto it = node_by_id_.find(id.value);
  return it == node_by_id_.end() ? nullptr : &nodes[it->second];
}
Node* State::find_node(NodeId id) { return const_cast<Node*>(std::as_const(*this).find_node(id)); }

const Node* State::find_node_named(std::string_view name) const {
  const auto it = node_by_name_.find(name);
  return it == node_by_name_.end() ? nullptr : &nodes[it->second];
}

const Attempt* State::find_attempt(JobId job, uint32_t number) const {
  const auto known = attempt_by_job_.find(job.value);
  if (known == attempt_by_job_.end()) return nullptr;
  if (known->second->number == number) return known->second;
  const auto it = attempts.find(AttemptKey{.job = job, .attempt = number, .member = 0});
  return it == attempts.end() ? nullptr : &it->second;
}
Attempt* State::find_attempt(JobId job, uint32_t number) {
  return const_cast<Attempt*>(std::as_const(*this).find_attempt(job, number));
}

TenantId State::most_remembered() const {
  CHECK(!request_counts_.empty());
  return request_counts_.rbegin()->second;
}

Time State::next_key_due() const {
  return keys.first_end() == kNever ? kNever : expiry(keys.first_end(), limits::kKeysKept);
}

uint64_t State::request_hash(TenantId tenant, uint32_t owner, std::string_view key) {
  Digest hash;
  hash.mix(tenant.value);
  hash.mix(owner);
  hash.mix(key);
  return hash.value();
}

const RememberedRequest* State::find_request(TenantId tenant, uint32_t owner, std::string_view key) const {
  const auto it = request_by_hash_.find(request_hash(tenant, owner, key));
  if (it == request_by_hash_.end()) return nullptr;
  const RememberedRequest& request = requests.at(it->second);
  return request.tenant == tenant && request.owner == owner && request.key == key ? &request : nullptr;
}

const Tenant& State::tenant_at(TenantId id) const {
  const Tenant* tenant = find_tenant(id);
  CHECK(tenant != nullptr);
  return *tenant;
}
Tenant& State::tenant_at(TenantId id) { return const_cast<Tenant&>(std::as_const(*this).tenant_at(id)); }

const Node& State::node_at(NodeId id) const {
  const Node* node = find_node(id);
  CHECK(node != nullptr);
  return *node;
}
Node& State::node_at(NodeId id) { return const_cast<Node&>(std::as_const(*this).node_at(id)); }

const Job& State::job_at(JobId id) const {
  const Job* job = jobs.find(id);
  CHECK(job != nullptr);
  return *job;
}
Job& State::job_at(JobId id) { return const_cast<Job&>(std::as_const(*this).job_at(id)); }

const Attempt& State::attempt_at(JobId job, uint32_t number) const {
  const Attempt* attempt = find_attempt(job, number);
  CHECK(attempt != nullptr);
  return *attempt;
}

const JobArray& State::array_at(JobId id) const {
  const JobArray* array = find_array(id);
  CHECK(array != nullptr);
  return *array;
}

const Booking& State::booking_at(BookingId id) const {
  const Booking* booking = find_booking(id);
  CHECK(booking != nullptr);
  return *booking;
}

Tenant& State::add_tenant(Tenant tenant) {
  if (const Tenant* const before = find_tenant(tenant.id)) drop_tenant_name(*before);
  // A snapshot carries deleted tenants too: their names may be another's by now.
  if (!tenant.deleted) add_tenant_name(tenant);
  const TenantId id = tenant.id;
  const auto [it, inserted] = tenants.insert_or_assign(id, std::move(tenant));
  CHECK(inserted || id == kDefaultTenant);  // A snapshot carries the default tenant too.
  tenant_by_id_[id.value] = &it->second;
  return it->second;
}

bool State::is_forgettable(const Tenant& tenant) const {
  const bool has_jobs = std::any_of(std::begin(tenant.state_counts), std::end(tenant.state_counts),
                                    [](int64_t count) { return count > 0; });
  return tenant.deleted && !has_jobs && tenant.recent_ends == 0 && !request_chains_.contains(tenant.id);
}

void State::remove_tenant(TenantId id) {
  const Tenant* tenant = find_tenant(id);
  CHECK(tenant != nullptr);
  CHECK(is_forgettable(*tenant));
  drop_tenant_name(*tenant);
  const auto first = submitters.lower_bound({id, std::string()});
  auto end = first;
  for (; end != submitters.end() && end->first.first == id; ++end)
    submitters_by_end_.erase({end->second.forgettable_at(), end->first});
  submitters.erase(first, end);
  waiting_below.erase(id);
  tenant_by_id_.erase(id.value);
  tenants.erase(id);
}

void State::rename_tenant(Tenant& tenant, const std::string& name) {
  if (tenant.name == name) return;  // Others may have the name as well.
  CHECK(tenants_named(name).empty());
  drop_tenant_name(tenant);
  tenant.name = name;
  add_tenant_name(tenant);
}

void State::delete_tenant(Tenant& tenant) {
  CHECK(!tenant.deleted);
  drop_tenant_name(tenant);
  tenant.deleted = true;
}

void State::add_tenant_name(const Tenant& tenant) {
  std::vector<TenantId>& ids = tenants_by_name_[tenant.name];
  const auto place = std::lower_bound(ids.begin(), ids.end(), tenant.id);
  CHECK(place == ids.end() || *place != tenant.id);
  ids.insert(place, tenant.id);
}

void State::drop_tenant_name(const Tenant& tenant) {
  const auto named = tenants_by_name_.find(tenant.name);
  if (named == tenants_by_name_.end()) return;
  std::erase(named->second, tenant.id);
  if (named->second.empty()) tenants_by_name_.erase(named);
}

}  // namespace gpusched
