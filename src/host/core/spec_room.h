#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/result.h"
#include "engine/messages/commands.h"
#include "model/state.h"

namespace gpusched {

/// The room for specifications of jobs, in bytes. It is the state that says what is taken
/// (State::spec_bytes); this adds what the group that is being made will take, so that what is admitted never
/// exceeds the limit, however many submit at a time.
///
/// Jobs of one holder (State::spec_holder) that have not ended take at most as much as all of them together
/// leave free. One alone gets half of the limit, two get a third each, and whoever has none always finds
/// some. Finished jobs give back their room before their time, the oldest first, when it is needed.
///
/// Kept by the host, not by the engine: what a journal says was admitted. Not thread-safe.
class SpecRoom {
 public:
  /// `bytes_max` 0: without limit.
  explicit SpecRoom(int64_t bytes_max) : bytes_max_(bytes_max) {}

  /// Nothing is on its way into the state any more.
  void begin_group();
  /// Counts what the command adds to the state, or says why it finds no room (kSpecsFull).
  std::optional<Error> take(const State& state, const Command& command);
  /// Looks whether finished jobs have to make room.
  void look(const State& state);
  /// Most finished jobs that may be kept; none: as many as are configured.
  std::optional<int64_t> finished_kept() const { return finished_kept_; }

 private:
  std::optional<Error> refusal(const State& state, const Tenant& tenant, int64_t bytes) const;

  const int64_t bytes_max_;
  int64_t group_bytes_ = 0;                     ///< Bytes that the group adds.
  std::map<TenantId, int64_t> group_bytes_of_;  ///< The same by the tenant that answers for them.
  std::optional<int64_t> finished_kept_;
};

}  // namespace gpusched
