#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "host/nodes/rules/watchdog.h"
#include "model/state.h"

namespace gpusched::hub {

/// The newest order that agents have about an attempt, by this process. Orders are repeated to agents that
/// connect; what is ordered never goes back.
enum class AttemptState : uint8_t {
  kStarting,  ///< Its agents are told to start it, in their turn or as they connect.
  kReleased,  ///< A gang that was prepared: its members are told to begin together.
  kStopping   ///< Its agents are told to stop it.
};

/// Whether an attempt's state may become another one (docs/adr/agent.md).
constexpr bool may_become(AttemptState from, AttemptState to) {
  return to > from || (from == AttemptState::kStopping && to == AttemptState::kStopping);
}

/// Facts about an attempt in the scheduler's process beside the journal's. Never journaled.
struct AttemptRow {
  /// Report about one member by the heartbeat `beat` of a connection.
  struct Told {
    uint64_t connection = 0;  ///< 0: nothing was told.
    uint64_t beat = 0;
    MemberActivity activity;
  };

  AttemptState state = AttemptState::kStarting;
  std::optional<WatchPolicy> watch_policy;  ///< Read once; specifications may be large.
  bool finding_proposed = false;            ///< A finding of the watchdog is proposed and not decided.
  std::vector<Told> told;                   ///< By member; shorter while less is known.
};

/// A row for each attempt of the state about which this process did something. Not thread-safe.
class AttemptTable {
 public:
  /// The attempt's row, which is made where there is none: of an attempt from before this process, with what
  /// the state says was ordered.
  AttemptRow& row_of(const Attempt& attempt);
  /// Null: nothing was done about it, or it is over.
  AttemptRow* find(JobId job, uint32_t attempt);
  /// False, and nothing happens, when the state may not become that one.
  static bool advance(AttemptRow& row, AttemptState to);
  /// Its last member ended.
  void erase(JobId job, uint32_t attempt);
  std::size_t size() const { return rows_.size(); }

 private:
  static AttemptKey key_of(JobId job, uint32_t attempt) {
    return {.job = job, .attempt = attempt, .member = 0};
  }

  std::unordered_map<AttemptKey, AttemptRow> rows_;
};

}  // namespace gpusched::hub
