#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/ports/ports.h"
#include "node/watch/activity_meter.h"
#include "node/watch/gpu_use_meter.h"

namespace gpusched::agent {

/// Stand of an attempt on its node (docs/adr/agent.md). Up to kExamined it is not over: it counts as running,
/// and its devices are its own.
enum class AttemptState : uint8_t {
  kAdopted,    ///< An earlier agent's, not known to have begun: what became of it is being found out.
  kOrdered,    ///< It starts when its record is on disk.
  kSlicing,    ///< Its MIG slices are made.
  kPreparing,  ///< Its prolog runs.
  kStarting,   ///< A shim was told to start it.
  kGated,      ///< It is prepared and waits for its gang.
  kRunning,    ///< Its command has begun.
  kExamined,   ///< It failed; its devices are looked at before that is said.
  kEnded,      ///< It is over; its record is not durable yet.
  kCleaning,   ///< Its end is told; its epilog runs.
  kReleasing,  ///< Its devices are seen empty, one after the other, and the scheduler is told.
  kClosed      ///< The scheduler knows all about it. Kept so that it is not started again.
};
inline constexpr std::size_t kAttemptStates = static_cast<std::size_t>(AttemptState::kClosed) + 1;

std::string to_string(AttemptState state);

/// Whether an attempt's state may become another one.
bool may_become(AttemptState from, AttemptState to);

constexpr bool is_over(AttemptState state) { return state >= AttemptState::kEnded; }

/// By when something is to have happened to an attempt.
enum class Deadline : uint8_t {
  kSlices,       ///< The driver is to have made its slices.
  kStart,        ///< Its shim is to have begun.
  kEnd,          ///< Its shim is to have ended it.
  kExamination,  ///< Its devices are to have been looked at.
};
inline constexpr std::size_t kDeadlines = static_cast<std::size_t>(Deadline::kExamination) + 1;

/// All that the agent knows of one attempt.
struct AttemptRow {
  /// While its MIG slices are made.
  struct Slicing {
    v1::StartAttempt order;
    std::vector<MadeSlice> made;  ///< Slices of its devices, in their order.
    std::size_t open = 0;         ///< Answers that are still to come.
    bool asked = false;
    std::string problem;
  };
  /// While its devices are looked at.
  struct Examination {
    v1::Outcome outcome;
    std::map<uint32_t, uint64_t> looks;  ///< By device: what DeviceWatch::looks must have reached.
  };
  struct RunLimit {
    Duration max_runtime;  ///< Zero: none.
    Duration grace;
    Time since = {};  ///< Not valid: it has not begun.
  };

  explicit AttemptRow(AttemptKey of) : key(of) {}
  AttemptRow(const AttemptRow&) = delete;
  AttemptRow& operator=(const AttemptRow&) = delete;

  AttemptState state() const { return state_; }
  bool over() const { return is_over(state_); }
  Time due(Deadline deadline) const { return due_[static_cast<std::size_t>(deadline)]; }
  /// False for an order or an answer about another attempt of the same number.
  bool was_placed(int64_t at_ns) const { return at_ns == 0 || placed_at_ns == 0 || at_ns == placed_at_ns; }

  const AttemptKey key;

  // Facts on record.
  std::vector<HeldDevice> devices;
  std::string user;                           ///< User that it runs as; empty: the agent's own user.
  std::optional<shim::Credentials> identity;  ///< The same as numbers.
  ShimProcess shim;
  int64_t placed_at_ns = 0;  ///< As ordered; 0: not known.
  bool prolog = false;       ///< Its prolog may have begun: its epilog follows.
  int64_t pid = 0;           ///< Process of its command; 0: it is not known to have begun.
  int64_t started_unix_ns = 0;
  std::optional<v1::Outcome> outcome;  ///< Set when it is over.
  uint64_t ended_position = 0;         ///< Position of its kEnded record; 0: durable before this agent began.
  bool acked = false;                  ///< The scheduler has the outcome.
  bool of_earlier_boot = false;
  bool of_earlier_agent = false;

  // Facts about work under way.
  bool found = false;            ///< It runs on devices that its lost record named.
  bool holds = false;            ///< Its devices are its own: it is not over, or its end is not durable yet.
  std::size_t unreleased = 0;    ///< Devices whose release is not acknowledged yet.
  bool may_go = false;           ///< Its gang goes; it was told so, or will be as soon as it is prepared.
  bool stopped_early = false;    ///< Ordered to stop while its slices were made or its prolog ran.
  int64_t saved_unix_ns = 0;     ///< When its work was safe, as this connection told.
  uint64_t prepared_report = 0;  ///< Outstanding; 0: none. Likewise the others.
  uint64_t started_report = 0;
  uint64_t ended_report = 0;

  // Expectations, until it is over.
  std::unique_ptr<SpawnRequest> request;  ///< Until its shim is told.
  std::unique_ptr<Slicing> slicing;
  std::unique_ptr<Examination> examination;
  std::optional<RunLimit> run_limit;                    ///< Set for attempts that this agent started.
  v1::Outcome::Cause end_cause = v1::Outcome::STOPPED;  ///< Why it is to end by Deadline::kEnd.
  std::optional<v1::Outcome::Cause> ignored_order;  ///< It did not start or end in time: the cause of an end
                                                    ///< without an outcome of its own.
  ActivityMeter activity_meter;
  GpuUseMeter gpu_use;                              ///< While this agent saw it run.
  int64_t peak_gpu_memory_mb = 0;                   ///< Peak of all its GPUs, over that time; 0: not known.
  std::optional<ActivityMeter::Activity> activity;  ///< As looked at last, of a running one with devices.
  std::string over_share;                           ///< Why it is ended for using too much memory.

 private:
  friend class AttemptTable;

  AttemptState state_ = AttemptState::kAdopted;
  std::array<Time, kDeadlines> due_ = {kNever, kNever, kNever, kNever};
};

/// All attempts that the agent knows, one row each, with what is asked of many of them: which are in a state,
/// and what is due next. Rows stay where they are until they are forgotten. Not thread-safe.
class AttemptTable {
 public:
  struct ByKey {
    bool operator()(const AttemptRow* a, const AttemptRow* b) const { return a->key < b->key; }
  };
  using Rows = std::set<AttemptRow*, ByKey>;

  /// A row that is not there yet.
  AttemptRow& add(const AttemptKey& key, AttemptState state);
  /// Null: it is not known.
  AttemptRow* find(const AttemptKey& key);
  const AttemptRow* find(const AttemptKey& key) const;
  /// False, and nothing happens, when its state may not become that one. All that belongs to the state that
  /// it leaves goes: deadlines, slices that are made, an examination.
  bool advance(AttemptRow& row, AttemptState to);
  /// Advances where only a bug of ours can be in the way.
  void move(AttemptRow& row, AttemptState to);
  /// Forgets a closed one.
  void erase(AttemptRow& row);

  /// kNever: nothing is due.
  void set_due(AttemptRow& row, Deadline deadline, Time at);
  /// Those whose deadline has passed, in the order of their keys.
  std::vector<AttemptRow*> late(Deadline deadline, Time now) const;
  Time next_due() const { return due_.empty() ? kNever : std::get<0>(*due_.begin()); }

  /// Those in a state, in the order of their keys. Closed ones are not listed.
  const Rows& in(AttemptState state) const { return by_state_[static_cast<std::size_t>(state)]; }
  std::size_t size() const { return rows_.size(); }
  /// How many are not over.
  std::size_t running_count() const { return running_count_; }
  /// How many of those were found without a record.
  std::size_t found_count() const { return found_count_; }
  void note_found(AttemptRow& row);
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (auto& [key, row] : rows_) visit(row);
  }

 private:
  void enter(AttemptRow& row, AttemptState to);
  void leave(AttemptRow& row);

  std::unordered_map<AttemptKey, AttemptRow> rows_;
  std::array<Rows, kAttemptStates> by_state_;
  std::set<std::tuple<Time, Deadline, AttemptRow*>> due_;
  std::size_t running_count_ = 0;
  std::size_t found_count_ = 0;
};

}  // namespace gpusched::agent
