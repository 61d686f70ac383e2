#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/limits.h"
#include "engine/planner.h"

namespace gpusched {

std::optional<WaitReason> Planner::quota_block(const State& state, uint32_t job_class) const {
  const JobClass& wanted = state.classes[job_class];
  const Amount amount = total_of(wanted.parts);
  for (const Tenant* at = state.find_tenant(wanted.tenant); at != nullptr;
       at = state.find_tenant(at->parent)) {
    Amount used = at->usage;
    used.add(planned_usage_of(at->id));
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t limit = at->limits.get(resource);
      const int64_t needed = amount_of(amount, resource);
      if (needed == 0 || limit == Limits::kUnlimited || amount_of(used, resource) + needed <= limit) continue;
      return WaitReason{.code = WaitCode::kQuota,
                        .wanted = wanted.parts.front(),
                        .tenant = at->id,
                        .resource = resource,
                        .limit = limit,
                        .current = amount_of(used, resource)};
    }
  }
  return std::nullopt;
}

WaitReason Planner::explain_refusal(const State& state, uint32_t job_class) {
  const Part& part = state.classes[job_class].parts.front();
  const ClassInfo& entry = info(job_class);
  WaitReason reason{.wanted = part};
  int64_t with_feature = 0;
  int64_t with_devices = 0;
  int64_t ready = 0;
  int64_t in_service = 0;
  int64_t healthy = 0;
  int64_t with_free = 0;
  int64_t with_cpu = 0;
  int64_t with_memory = 0;
  visits_ += state.nodes.size();
  for (uint32_t slot = 0; slot < state.nodes.size(); ++slot) {
    const Node& node = state.nodes[slot];
    const NodeInfo& now = nodes_[slot];
    if ((part.features & ~node.feature_bits) != 0) continue;
    ++with_feature;
    int count_all = 0;
    int count_healthy = 0;
    int count_free = 0;
    for (const auto& [kind, mask] : now.class_masks) {
      if (((entry.device_classes >> kind) & 1) == 0) continue;
      count_all = std::max(count_all, std::popcount(mask));
      count_free = std::max(count_free, std::popcount(mask & now.free_mask));
      int fit = 0;
      for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
        const Device& device = node.devices[static_cast<std::size_t>(std::countr_zero(rest))];
        if (device.fit() && device.state != DeviceState::kQuarantined) ++fit;
      }
      count_healthy = std::max(count_healthy, fit);
    }
    if (count_all < part.gpu_count) continue;
    ++with_devices;
    if (node.cpu_milli < part.cpu_milli || node.memory_mb < part.memory_mb) continue;
    ++reason.nodes_fitting;
    if (node.state != NodeState::kReady || !now.present) continue;
    ++ready;
    if (node.availability != Availability::kInService) continue;
    ++in_service;
    if (count_healthy < part.gpu_count) continue;
    ++healthy;
    reason.gpus_free_max = std::max<int64_t>(reason.gpus_free_max, count_free);
    if (count_free < part.gpu_count) continue;
    ++with_free;
    if (now.cpu_milli_free < part.cpu_milli) continue;
    ++with_cpu;
    if (now.memory_mb_free >= part.memory_mb) ++with_memory;
  }
  if (state.nodes.empty()) {
    reason.code = WaitCode::kNoNode;
  } else if (with_feature == 0) {
    reason.code = WaitCode::kNoFeature;
  } else if (with_devices == 0) {
    reason.code = WaitCode::kNoSuchDevice;
  } else if (reason.nodes_fitting == 0) {
    reason.code = WaitCode::kTooLarge;
  } else if (ready == 0) {
    reason.code = WaitCode::kNodesAway;
  } else if (in_service == 0) {
    reason.code = WaitCode::kNodesHeld;
  } else if (healthy == 0) {
    reason.code = WaitCode::kDevicesUnfit;
  } else if (with_free == 0) {
    reason.code = WaitCode::kGpusBusy;
  } else if (with_cpu == 0) {
    reason.code = WaitCode::kCpuBusy;
  } else if (with_memory == 0) {
    reason.code = WaitCode::kMemoryBusy;
  } else {
    reason.code = WaitCode::kNodeFull;
  }
  return reason;
}

}  // namespace gpusched
