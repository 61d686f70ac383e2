#include "provision/demand.h"

#include <algorithm>

#include "provision/pool.h"

namespace gpusched::provision {
namespace {

/// How many jobs of that amount the limits of the tenant and of those above it would still let run.
int64_t allowed_jobs(const State& state, TenantId id, const Amount& amount) {
  int64_t jobs = kJobsPerClassMax;
  for (const Tenant* at = state.find_tenant(id); at != nullptr; at = state.find_tenant(at->parent)) {
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t limit = at->limits.get(resource);
      const int64_t wanted = amount_of(amount, resource);
      if (limit == Limits::kUnlimited || wanted <= 0) continue;
      jobs = std::min(jobs, std::max<int64_t>(0, limit - amount_of(at->usage, resource)) / wanted);
    }
  }
  return jobs;
}

bool is_quiet(const Node& node) {
  if (!node.attempts.empty() || node.promised_count > 0) return false;
  if (node.booked_by != 0 || node.booked_from != kNever) return false;
  return std::ranges::all_of(node.devices, [](const Device& device) {
    const bool idle = device.state == DeviceState::kFree || device.state == DeviceState::kQuarantined;
    return idle && !device.promised_to.valid();
  });
}

}  // namespace

bool lifted_by_machine(const WaitReason& reason) {
  if (is_limit(reason) || reason.of_booking) return false;
  switch (reason.code) {
    case WaitCode::kNoNode:
    case WaitCode::kNoMatchingGpu:
    case WaitCode::kTooLarge:
    case WaitCode::kNodesUnreachable:
    case WaitCode::kGpusUnhealthy:
    case WaitCode::kGpusBusy:
    case WaitCode::kCpuBusy:
    case WaitCode::kMemoryBusy:
    case WaitCode::kNodeFull:
    case WaitCode::kNoFeature:
    case WaitCode::kNodesHeld:
    case WaitCode::kDevicesHot:
    case WaitCode::kGangPartiallyFits:
    case WaitCode::kGangTooLarge:
    case WaitCode::kNoLabels:
    case WaitCode::kNodesTaken:
    case WaitCode::kLayoutUnavailable:
    case WaitCode::kNoSuchLayout:
      return true;
    case WaitCode::kQueued:
    case WaitCode::kQuota:
    case WaitCode::kReserved:
    case WaitCode::kGpuTime:
    case WaitCode::kPool:
    case WaitCode::kReservedForOthers:
    case WaitCode::kNoDomain:
      return false;
  }
  return false;
}

std::vector<Demand> demand_of(const State& state, const std::vector<WaitReason>& reasons) {
  std::vector<Demand> found;
  if (state.config.pause.on()) return found;  // A machine would start nothing.
  std::vector<std::pair<OrderKey, uint32_t>> waiting;
  for (uint32_t i = 0; i < state.classes.size() && i < reasons.size(); ++i) {
    if (!state.classes[i].waiting.empty() && lifted_by_machine(reasons[i]))
      waiting.emplace_back(state.classes[i].waiting.front(), i);
  }
  std::ranges::sort(waiting);
  if (waiting.size() > kClassesMax) waiting.resize(kClassesMax);
  for (const auto& [first, number] : waiting) {
    const JobClass& job_class = state.classes[number];
    const int64_t allowed = allowed_jobs(state, job_class.tenant, total_of(job_class.parts));
    const int64_t jobs = std::min(allowed, static_cast<int64_t>(job_class.waiting.size()));
    if (jobs > 0) found.push_back({.job_class = number, .parts = job_class.parts, .jobs = jobs});
  }
  return found;
}

std::optional<MachineNode> machine_node(const State& state, const std::string& name) {
  const Node* node = state.find_node_named(name);
  if (node == nullptr || node->removed) return std::nullopt;
  MachineNode out{.id = node->id, .boot_id = node->boot_id};
  out.silent = node->state != NodeState::kReady;
  out.in_service = node->in_service();
  out.drained = node->availability == Availability::kDraining;
  out.drained_by_us = out.drained && node->availability_by == kDrainedBy;
  out.kept = node->label(kKeepLabel) != nullptr;
  out.quiet = is_quiet(*node);
  // A machine that drains counts with all that it has: it may be put back into service.
  if (out.quiet && !out.silent) out.capacity.emplace(*node, state.device_classes);
  return out;
}

std::vector<Capacity> free_capacities(const State& state, const std::vector<std::string>& but,
                                      std::size_t max) {
  std::vector<Capacity> found;
  for (const Node& node : state.nodes) {
    if (found.size() >= max) break;
    if (node.removed || !node.in_service() || node.booked_by != 0) continue;
    if (node.cpu_milli_used >= node.cpu_milli && node.free_mask == 0) continue;
    if (std::ranges::binary_search(but, node.name)) continue;
    found.emplace_back(node, state.device_classes);
  }
  return found;
}

}  // namespace gpusched::provision
