#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/messages/commands.h"
#include "engine/messages/rejection.h"
#include "model/state.h"

namespace gpusched {

/// The places for waiting jobs (EngineConfig::queue_size_max), shared as the room for specifications is
/// (SpecRoom): the waiting jobs of one holder (State::spec_holder) take at most as many places as all of them
/// together leave free. One alone gets half of the places, two get a third each, and a holder without waiting
/// jobs always finds a place for one. Jobs that wait again after an attempt are never refused.
///
/// Kept by the host, not by the engine: what a journal says was admitted. Not thread-safe.
class QueueRoom {
 public:
  /// Learns the state that a host begins with.
  explicit QueueRoom(const State& state);

  /// Nothing is on its way into the state any more.
  void begin_group();
  /// Counts the jobs that the command adds, or says that they find no place (kQueueFull). A queue that is too
  /// full for anybody is for the engine to refuse.
  std::optional<Rejection> take(const State& state, const Command& command);

 private:
  int64_t held_by(const State& state, TenantId holder);
  void count_open(const State& state);

  int64_t group_jobs_ = 0;                     ///< Jobs that the group adds.
  std::map<TenantId, int64_t> group_jobs_of_;  ///< The same by holder.
  /// Tenants of callers without a credential that may have waiting jobs, and those that may from the next
  /// group on.
  std::set<TenantId> open_;
  std::vector<TenantId> opened_;
  /// Counted at most once for a group, and only while the queue is more than half full: all of them, and
  /// those below each topmost tenant.
  bool is_counted_ = false;
  int64_t open_jobs_ = 0;
  std::map<TenantId, int64_t> open_jobs_below_;
};

}  // namespace gpusched
