#include <utility>

#include "base/check.h"
#include "model/state.h"

namespace gpusched {

const Tenant* State::find_tenant(TenantId id) const {
  const auto it = tenant_by_id_.find(id.value);
  return it == tenant_by_id_.end() ? nullptr : it->second;
}
Tenant* State::find_tenant(TenantId id) { return const_cast<Tenant*>(std::as_const(*this).find_tenant(id)); }

const Tenant* State::find_tenant_named(std::string_view name) const {
  const auto it = tenant_by_name_.find(name);
  if (it == tenant_by_name_.end()) return nullptr;
  const Tenant* tenant = find_tenant(it->second);
  // A deleted or renamed tenant leaves its old name behind.
  return tenant != nullptr && !tenant->deleted && tenant->name == name ? tenant : nullptr;
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

}  // namespace gpusched
