#include "base/check.h"
#include "base/limits.h"
#include "engine/planner/planner.h"

namespace gpusched {

std::optional<WaitReason> Planner::quota_block(const State& state, uint32_t job_class) const {
  return quota_block(state, job_class, total_of(state.classes[job_class].parts));
}

std::optional<WaitReason> Planner::quota_block(const State& state, uint32_t job_class,
                                               const Amount& amount) const {
  const JobClass& wanted = state.classes[job_class];
  for (const Tenant* at = state.find_tenant(wanted.tenant); at != nullptr;
       at = state.find_tenant(at->parent)) {
    Amount used = at->usage;
    used.add(planned_usage_of(at->id));
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t limit = at->limits.get(resource);
      if (amount_of(amount, resource) == 0 || limit == Limits::kUnlimited) continue;
      Amount then = used;
      then.add(amount);
      if (amount_of(then, resource) <= limit) continue;
      return WaitReason{.code = WaitCode::kQuota,
                        .wanted = wanted.parts.front(),
                        .tenant = at->id,
                        .resource = resource,
                        .limit = limit,
                        .current = amount_of(used, resource)};
    }
  }
  if (const Tenant* spent = guarantees::out_of_gpu_time(state, wanted.tenant, amount, now_)) {
    return WaitReason{.code = WaitCode::kGpuTime,
                      .wanted = wanted.parts.front(),
                      .tenant = spent->id,
                      .limit = spent->gpu_time.max_ms,
                      .current = spent->gpu_time.used_by(now_, spent->usage),
                      .lifts_at = spent->gpu_time.end_of_window(now_)};
  }
  return pool_block(wanted.parts, state, amount);
}

// A pool that lends nothing and borrows nothing is full.
std::optional<WaitReason> Planner::pool_block(const std::vector<Part>& parts, const State& state,
                                              const Amount& amount) const {
  const int64_t wanted = amount.gpu_thousandths();
  if (!pools_.on() || pools_.lends() || wanted == 0) return std::nullopt;
  const bool online = work_of(parts) == WorkClass::kOnline;
  const int64_t share = pools_.gpus_of(online, capacity_.gpus);
  const int64_t held =
      (online ? state.online : state.batch).milli + (online ? planned_online_ : planned_batch_);
  if (held + wanted <= share * kMilliPerGpu) return std::nullopt;
  return WaitReason{
      .code = WaitCode::kPool, .wanted = parts.front(), .limit = share, .current = milli_up(held)};
}

WaitReason Planner::explain_refusal(const State& state, uint32_t job_class) {
  Shape& shape = shape_of(job_class);
  refresh_census(state, shape);
  WaitReason reason{.wanted = shape.parts.front()};
  // How many nodes pass so many checks or more.
  int64_t at_least[Census::kStages] = {};
  int64_t sum = 0;
  for (std::size_t stage = Census::kStages; stage-- > 0;) at_least[stage] = sum += shape.census.count[stage];
  const int64_t with_feature = at_least[1];
  const int64_t with_labels = at_least[2];
  const int64_t with_devices = at_least[3];
  const int64_t with_layout = at_least[4];
  const int64_t ready = at_least[6];
  const int64_t in_service = at_least[7];
  const int64_t booked = in_service - at_least[8];
  const int64_t sound = at_least[9];
  const int64_t healthy = at_least[10];
  const int64_t not_taken = at_least[11];
  const int64_t with_free = at_least[12];
  const int64_t with_free_layout = at_least[13];
  const int64_t with_cpu = at_least[14];
  const int64_t with_memory = at_least[15];
  reason.nodes_fitting = at_least[5];
  for (std::size_t free = shape.census.free_count.size(); free-- > 1;) {
    if (shape.census.free_count[free] == 0) continue;
    reason.gpus_free_max = static_cast<int64_t>(free);
    break;
  }
  if (state.node_count() == 0) {
    reason.code = WaitCode::kNoNode;
  } else if (with_feature == 0) {
    reason.code = WaitCode::kNoFeature;
  } else if (with_labels == 0) {
    reason.code = WaitCode::kNoLabels;
  } else if (with_devices == 0) {
    reason.code = WaitCode::kNoSuchDevice;
  } else if (with_layout == 0) {
    reason.code = WaitCode::kNoSuchLayout;
  } else if (reason.nodes_fitting == 0) {
    reason.code = WaitCode::kTooLarge;
  } else if (ready == 0) {
    reason.code = WaitCode::kNodesAway;
  } else if (in_service == 0) {
    reason.code = WaitCode::kNodesHeld;
  } else if (in_service == booked) {
    reason.code = WaitCode::kBooked;
    const Booking* own = state.find_booking(BookingId{shape.parts.front().booking});
    if (own != nullptr) reason.reserved_start = own->begin;
    reason.booking = shape.parts.front().booking;
    reason.booking_over = reason.booking != 0 && own == nullptr;
  } else if (sound == 0) {
    reason.code = WaitCode::kDevicesUnfit;
  } else if (healthy == 0) {
    reason.code = WaitCode::kDevicesHot;
  } else if (not_taken == 0) {
    reason.code = WaitCode::kNodesTaken;
  } else if (with_free == 0) {
    reason.code = WaitCode::kGpusBusy;
  } else if (with_free_layout == 0) {
    reason.code = WaitCode::kLayoutUnavailable;
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
