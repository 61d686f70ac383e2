#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "model/state.h"

namespace gpusched {

/// Why the jobs of a class wait, beyond their place in line.
enum class WaitCode : uint8_t {
  kQueued = 0,        ///< Not looked at yet, or its turn comes in the next slice.
  kNoNode,            ///< No node is registered.
  kNoMatchingGpu,     ///< No registered node has that kind or number of GPUs.
  kTooLarge,          ///< No registered node has that much CPU or memory.
  kNodesUnreachable,  ///< Nodes that could run it do not report.
  kGpusUnhealthy,     ///< Enough GPUs exist, but some are unhealthy, missing or quarantined.
  kGpusBusy,
  kCpuBusy,
  kMemoryBusy,
  kNodeFull,           ///< The limit of attempts per node.
  kQuota,              ///< The tenant's limit, with what it uses now.
  kNoFeature,          ///< No registered node can do what it asks for, such as running container images.
  kNodesHeld,          ///< Nodes that could run it are draining or validating.
  kReserved,           ///< Free resources are kept for a job that stands before it and starts soon.
  kGpuTime,            ///< The tenant's GPU hours of this window are used up.
  kPool,               ///< Its kind of work uses its share of the GPUs.
  kReservedForOthers,  ///< Nodes that could run it are booked by others, now or before it would end; or its
                       ///< booking is not on.
  /// Enough GPUs are well, but hot ones, which take no new work, are among them.
  kDevicesHot,
  kGangPartiallyFits,  ///< Not all members of the gang fit at once.
  kGangTooLarge,       ///< They would not even if nothing else ran.
  kNoDomain,           ///< It insists on a domain of a level that no node's labels name.
  kNoLabels,           ///< No registered node has the labels that it asks for, and none that it forbids.
  kNoSuchLayout,       ///< No registered node has devices that lie, are named or are linked as it asks.
  kNodesTaken,  ///< Nodes that could run it are held by others for themselves; or it wants one for itself
                ///< and something runs on each.
  kLayoutUnavailable,  ///< Enough devices are free, but not those, or not lying as it asks.
};
/// Whether it is a limit and nothing that a node could lift.
constexpr bool is_quota(WaitCode code) {
  return code == WaitCode::kQuota || code == WaitCode::kGpuTime || code == WaitCode::kPool;
}
/// Whether nodes in service could run it, and only what runs there is in its way.
constexpr bool is_short_of_room(WaitCode code) {
  return code == WaitCode::kGpusBusy || code == WaitCode::kCpuBusy || code == WaitCode::kMemoryBusy ||
         code == WaitCode::kNodeFull;
}
std::string_view to_string(WaitCode code);

/// The dominant reason of a class, with its evidence.
struct WaitReason {
  WaitCode code = WaitCode::kQueued;
  Part wanted;                ///< Request of one member.
  int64_t gpus_free_max = 0;  ///< The most fitting GPUs free on one node.
  int64_t nodes_fitting =
      0;            ///< Nodes that could run it when empty; where it waits for room, those in service.
  TenantId tenant;  ///< kQuota, kGpuTime: owner of the limit; in GPU-milliseconds for the latter. None: a
                    ///< tenant above the job's, which is not shown.
  Resource resource = Resource::kNone;
  int64_t limit = 0;
  int64_t current = 0;
  int64_t requested = 0;  ///< kQuota: what the job alone wants of it.
  /// Nodes with room for it that take no new jobs: draining or validating. kNodesHeld: zero where no node
  /// that could run it is in service.
  int64_t nodes_held = 0;
  /// kNodesUnreachable: nodes with room for it that do not report; zero where none that could run it reports.
  int64_t nodes_away = 0;
  JobId reserved_for;    ///< kReserved: the job that stands before it (none: it is not shown).
  Time reserved_start;   ///< kReserved: earliest start of that job. kReservedForOthers: begin of the booking.
  uint64_t booking = 0;  ///< kReservedForOthers: its own booking, which is not on.
  bool booking_over = false;  ///< kReservedForOthers: its own booking will never be on again.
  bool of_booking = false;    ///< No node of its reservation could run it; `booking` is not set.
  bool of_limit = false;      ///< kReserved: what is left of the limit of `tenant` is kept, or of a pool.
  Time lifts_at;              ///< kGpuTime: when the next window begins.
  Time start;  ///< When the class's first job can start, as was promised to it; none: it was not.
  int64_t members_wanted = 0;   ///< Gangs only: least number of members, of all parts or of `wanted`.
  int64_t members_fitting = 0;  ///< Gangs only: most members that fit, now or ever.
  DomainLevel domain = DomainLevel::kAny;  ///< In one domain of this level, on which it insists.

  friend bool operator==(const WaitReason&, const WaitReason&) = default;
};

/// Whether it is a limit, or what another keeps of one, and nothing that a node could lift.
inline bool is_limit(const WaitReason& reason) { return is_quota(reason.code) || reason.of_limit; }

/// There is room, and it is only the job's length that keeps it from that: a shorter one like it may pass.
inline bool is_kept_back(const WaitReason& reason) {
  return reason.code == WaitCode::kReserved || (reason.code == WaitCode::kReservedForOthers &&
                                                reason.booking == 0 && reason.reserved_start.valid());
}

/// One sentence for people.
std::string describe(const WaitReason& reason);

/// Facts about a promise, for who asks about its job.
struct PromiseFacts {
  std::string node;         ///< Where the job starts, or goes on.
  bool moves = false;       ///< It is moved there itself; otherwise others are ended for it.
  JobId job;                ///< Job for which it is moved, or the first of those that end; none: not shown.
  std::size_t victims = 0;  ///< Number of jobs that end for it.
  std::size_t running = 0;  ///< Number of those that have not ended yet.
};
PromiseFacts promise_facts(const State& state, const Promise& promise);
std::string describe(const PromiseFacts& facts);
/// Names of events that could lift it.
std::vector<std::string> lifted_by(const WaitReason& reason);

}  // namespace gpusched
