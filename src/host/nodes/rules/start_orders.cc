#include "host/nodes/rules/start_orders.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/text/task_content.h"
#include "base/text/task_payload.h"
#include "base/text/task_worker.h"

namespace gpusched {
namespace {

/// Where gangs meet: below the ports that systems give out by themselves.
constexpr uint64_t kPortFirst = 20'000;
constexpr uint64_t kPortCount = 10'000;
constexpr uint64_t kPortTurns = 7;  ///< An attempt's port is as far from those of the next jobs.
constexpr std::size_t kPartsKept = 8;

/// The same bytes for the same specification: maps by their keys.
std::string packed(const v1::JobSpec& spec) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return bytes;
}

/// Specification of an element: its array's, with its index in the environment.
std::string element_spec(const State& state, const Job& job) {
  const JobArray* array = state.find_array(job.array);
  CHECK(array != nullptr);
  v1::JobSpec spec;
  if (!spec.ParseFromArray(job.spec.view().data(), static_cast<int>(job.spec.view().size())))
    return std::string(job.spec.view());
  const std::string index = std::to_string(array->index_at(array->position_of(job.id)));
  auto& environment = *spec.mutable_environment();
  environment["GPU_SCHEDULER_ARRAY_ID"] = "job-" + std::to_string(array->id.value);
  environment["GPU_SCHEDULER_ARRAY_INDEX"] = index;
  environment["GPU_SCHEDULER_ARRAY_COUNT"] = std::to_string(array->count);
  CHECK(!array->ranges.empty());
  const IndexRange& one = array->ranges.front();
  IndexRange all = one;
  for (const IndexRange& range : array->ranges) {
    all.first = std::min(all.first, range.first);
    all.last = std::max(all.last, range.first + (range.count() - 1) * range.step);
  }
  environment["GPU_SCHEDULER_ARRAY_FIRST"] = std::to_string(all.first);
  environment["GPU_SCHEDULER_ARRAY_LAST"] = std::to_string(all.last);
  environment["GPU_SCHEDULER_ARRAY_STEP"] = std::to_string(array->ranges.size() == 1 ? one.step : 1);
  if (!spec.name().empty()) spec.set_name(spec.name() + "-" + index);
  return packed(spec);
}

/// After how long without contact a shim has to end its attempt. Never before the node can have lost its
/// lease; and long limits a little earlier, since the journal's clock may run a twentieth fast and the
/// engine's slack covers no more than half a minute of that.
Duration silence_limit(Duration asked, Duration lease) {
  if (asked.ns == 0) return asked;
  constexpr Duration kCovered{limits::kContactSlack.ns / 2};
  const Duration drift{asked.ns / 21};
  if (drift > kCovered) asked = asked - drift + kCovered;
  return std::max(asked, lease);
}

/// Adds the facts about each other that a gang's members need.
void add_gang(const State& state, const Attempt& attempt, v1::StartAttempt& start) {
  if (!attempt.is_gang()) return;
  v1::Gang& gang = *start.mutable_gang();
  for (const Member& member : attempt.members) {
    const Node* node = state.find_node(member.node);
    CHECK(node != nullptr);
    v1::Gang::Member& told = *gang.add_members();
    told.set_node(node->name);
    told.set_address(node->reached_at());
    told.set_gpus(std::popcount(member.device_mask));
    told.set_part(member.part);
  }
  // Another one for each attempt: where one was taken the next is tried.
  const uint64_t turn = attempt.job.value * kPortTurns + attempt.number;
  gang.set_master_port(static_cast<uint32_t>(kPortFirst + turn % kPortCount));
}

/// Tenants may have the same name, and owners of different kinds, too.
std::string owner_of(const State& state, const Job& job) {
  std::string text = "tenant-" + std::to_string(job.tenant.value);
  const JobOwner* const owner = state.owners.at(job.owner);
  if (owner == nullptr) return text;
  return text + ' ' + std::to_string(static_cast<int>(owner->kind)) + ' ' + owner->name;
}

}  // namespace

v1::StartAttempt common_start(const State& state, const Attempt& attempt, Duration grace, Duration lease) {
  const Job* job = state.jobs.find(attempt.job);
  CHECK(job != nullptr);
  v1::StartAttempt start;
  std::string spec = job->is_element() ? element_spec(state, *job) : without_task_payload(job->spec.view());
  remove_task_content(spec);
  add_worker_owner(spec, owner_of(state, *job));
  start.set_spec(std::move(spec));
  start.set_max_runtime_ms(job->max_runtime.ms());
  start.set_grace_ms(grace.ms());
  start.set_placed_at_ns(attempt.placed_at.ns);
  start.set_kill_after_lost_contact_ms(silence_limit(job->retry.kill_after_lost_contact, lease).ms());
  start.set_job_name("job-" + std::to_string(attempt.job.value));
  start.set_image_digest(std::string(job->extras->image_digest.view()));
  if (const Tenant* const tenant = state.find_tenant(job->tenant)) start.set_tenant(tenant->name);
  add_gang(state, attempt, start);
  return start;
}

std::optional<v1::StartAttempt> member_start(const State& state, const Attempt& attempt, uint32_t number,
                                             const AgentIndex& index_of) {
  const Member& member = attempt.members[number];
  const Node* node = state.find_node(member.node);
  CHECK(node != nullptr);
  v1::StartAttempt start;
  start.mutable_key()->set_job(attempt.job.value);
  start.mutable_key()->set_attempt(attempt.number);
  start.mutable_key()->set_member(number);
  for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1) {
    const auto slot = static_cast<uint32_t>(std::countr_zero(rest));
    const std::optional<uint32_t> index = index_of(slot);
    if (!index) return std::nullopt;
    v1::GrantedDevice& device = *start.add_devices();
    device.set_index(*index);
    device.set_generation(node->devices[slot].generation);
    device.set_uuid(node->devices[slot].uuid);
    device.set_share_milli(member.gpu_milli);
    device.set_share_memory_mb(member.gpu_share_mb);
    device.set_mig_profile(member.mig_profile);
    device.set_mig_start(member.mig_start);
  }
  start.set_cpu_milli(member.cpu_milli);
  start.set_memory_mb(member.memory_mb);
  return start;
}

SharedPart SharedStarts::part_of(const AttemptKey& attempt, Time placed_at, bool by_node, const Make& make) {
  const auto known = std::find_if(parts_.begin(), parts_.end(), [&](const Entry& entry) {
    return entry.attempt == attempt && entry.placed_at == placed_at && entry.by_node == by_node;
  });
  if (known != parts_.end()) return known->part;
  v1::SchedulerMessage message;
  (by_node ? *message.mutable_start_members()->mutable_common() : *message.mutable_start()) = make();
  auto part = std::make_shared<const std::string>(message.SerializeAsString());
  if (parts_.size() == kPartsKept) parts_.pop_front();
  parts_.push_back({.attempt = attempt, .placed_at = placed_at, .by_node = by_node, .part = part});
  return part;
}

void SharedStarts::forget(JobId job) {
  std::erase_if(parts_, [job](const Entry& entry) { return entry.attempt.job == job; });
}

void SharedStarts::node_registered(NodeId node, const std::string& address) {
  std::string& known = addresses_[node];
  if (known == address) return;
  known = address;
  parts_.clear();
}

void PendingStarts::add(const Attempt& attempt) {
  Entry entry{.attempt = attempt.key(), .placed_at = attempt.placed_at, .nodes = {}};
  std::map<NodeId, std::size_t> places;
  for (uint32_t member = 0; member < attempt.members.size(); ++member) {
    const NodeId node = attempt.members[member].node;
    const auto [place, fresh] = places.try_emplace(node, entry.nodes.size());
    if (fresh) entry.nodes.emplace_back(node, std::vector<uint32_t>());
    entry.nodes[place->second].second.push_back(member);
  }
  attempts_.push_back(std::move(entry));
}

void PendingStarts::tell(std::size_t agents, const Tell& tell_one) {
  while (!attempts_.empty() && agents > 0) {
    Entry& entry = attempts_.front();
    bool goes_on = entry.next < entry.nodes.size();
    for (; goes_on && agents > 0; --agents) {
      const auto& [node, members] = entry.nodes[entry.next++];
      goes_on = tell_one(entry.attempt, entry.placed_at, node, members) && entry.next < entry.nodes.size();
    }
    if (!goes_on) attempts_.pop_front();
  }
}

}  // namespace gpusched
