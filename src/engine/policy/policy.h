#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/policy/task_order.h"
#include "model/state.h"

/// Orders, filters, scores, run times and victims of this release; where a gang goes has one rule, in
/// `gang_fit.h`.
///
/// The decisions of a scheduling cycle that may change every week: each is a small class, named in
/// `registry.cc` and chosen in the configuration. Policies run on the leader only; what they chose is
/// journaled, so no journal depends on them. They are pure: integers, no clock, no chance.
namespace gpusched::policy {

/// A tenant with jobs that could be placed, as a queue order sees it.
struct LineView {
  const State& state;
  const Tenant& tenant;
  const Job& head;         ///< First of its jobs that are looked at.
  OrderKey order;          ///< Place of `head` by the order of jobs.
  const Amount& capacity;  ///< Capacity of all nodes in service.
  /// Placements of this slice that the tenants' usage does not have yet, by tenant, ancestors included.
  std::span<const std::pair<TenantId, Amount>> planned;
  Time now;
};

/// Where a tenant's line stands among the lines of all tenants. Less means earlier: by the ranks from the
/// root of the tree of tenants down, the smaller first, a tenant before its children; then by the head.
struct QueueKey {
  std::vector<int64_t> ranks;  ///< None: only the head counts.
  OrderKey head;

  friend std::strong_ordering operator<=>(const QueueKey& a, const QueueKey& b) {
    const std::strong_ordering by_rank = a.ranks <=> b.ranks;
    return by_rank != std::strong_ordering::equal ? by_rank : a.head <=> b.head;
  }
  friend bool operator==(const QueueKey&, const QueueKey&) = default;
};

/// Rest of a node at this point of the cycle, without this cycle's own placements.
struct NodeView {
  const Node& node;
  int64_t cpu_milli_free = 0;
  int64_t memory_mb_free = 0;
  uint64_t free_mask = 0;  ///< Free devices of any class.
  uint64_t usable_mask =
      0;  ///< Those of one class that fits the part; for a share all that have room for it.
  uint64_t shared_mask = 0;  ///< Shares only: those of them that others have shares of.
  uint32_t attempt_count = 0;
  bool exclusive = false;  ///< Somebody has it for itself.
  bool busy = false;       ///< The part wants it for itself, and something runs there.
  int64_t link_gbs = 0;    ///< The weakest link among the devices that the member would get; 0: not known.
};

/// 0..100; the higher wins, then the node registered first.
struct Score {
  static constexpr int32_t kMax = 100;
  int32_t value = 0;

  static Score of(int64_t value) {
    CHECK(value >= 0);
    CHECK(value <= kMax);
    return {static_cast<int32_t>(value)};
  }
  friend auto operator<=>(Score, Score) = default;
};

/// Why a filter refuses a node. The cycle counts these to explain a wait.
enum class Refusal : uint8_t {
  kNone = 0,
  kCpu,
  kMemory,
  kGpus,
  kAttempts,
  kFeature,
  kReservedForOthers,
  kExclusive
};

/// Decides which tenant's first job is placed next.
class QueueOrder {
 public:
  virtual ~QueueOrder() = default;
  virtual std::string_view name() const = 0;
  /// Constant until the head, the tenant's use or the tenant changes, unless the order is_time_dependent.
  virtual QueueKey key(const LineView& line) const = 0;
  /// True when keys change with what tenants use, and with time: they are made again when somebody's use
  /// changes, and now and then.
  virtual bool is_time_dependent() const { return false; }
  /// True when the use of a tenant's ancestors is in its key.
  virtual bool is_tree() const { return false; }
};

class RunTimes;

/// Decides which of a tenant's jobs is looked at first.
class JobOrder {
 public:
  /// A rank is always between these two, which are for jobs that stand before or behind all ranked ones.
  static constexpr int64_t kFirst = INT64_MAX;
  static constexpr int64_t kLast = INT64_MIN;

  virtual ~JobOrder() = default;
  virtual std::string_view name() const = 0;
  /// True: jobs stand as the state has them in line, by `Job::order_key`, and `rank` is not asked.
  virtual bool uses_static_order() const { return false; }
  /// The higher rank first, then the older job. Constant while the job waits, unless the order
  /// is_time_dependent.
  virtual int64_t rank(const State& state, const Job& job, const RunTimes& run_times, Time now) const = 0;
  /// True when what `run_times` knows changes ranks: they are asked for again in turn.
  virtual bool is_time_dependent() const { return false; }
};

/// How long jobs are expected to run. A guess of the leader's that is never journaled.
class RunTimes {
 public:
  virtual ~RunTimes() = default;
  virtual std::string_view name() const = 0;
  /// Whole run of a job that would run now in place of one that waits before it; positive.
  virtual Duration to_pass(const State& state, const Job& job, Time now) const = 0;
  /// Whole run of a job that has run for `elapsed`. Not longer than `elapsed` when it should be over.
  virtual Duration of_running(const State& state, const Job& job, Duration elapsed, Time now) const = 0;
  /// Whole run of a waiting job that has run for `attained` before and continues from there, as likely
  /// shorter as longer; used for its order. Not longer than `attained` when it should be over.
  virtual Duration to_order(const State& state, const Job& job, Duration attained, Time now) const {
    return of_running(state, job, attained, now);
  }
};

/// Says whether a node may take one member of a part.
class Filter {
 public:
  virtual ~Filter() = default;
  virtual std::string_view name() const = 0;
  virtual Refusal check(const Part& part, const NodeView& node) const = 0;
};

/// Rates a node that passed every filter.
class ScorePolicy {
 public:
  virtual ~ScorePolicy() = default;
  virtual std::string_view name() const = 0;
  virtual Score score(const Part& part, const NodeView& node) const = 0;
};

/// A running job that may be ended for another one, on one node.
struct VictimView {
  const Job* job = nullptr;
  const Attempt* attempt = nullptr;
  int32_t devices = 0;  ///< Those that would serve.
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  int64_t gpus = 0;      ///< All that it holds.
  Time end;              ///< When it is expected to end by itself.
  int64_t priority = 0;  ///< See `effective_priority`.
  bool spared = false;   ///< It is ended only when others do not suffice.
};

/// Lack of a node for a job; zero or less: it has enough.
struct Lack {
  int32_t devices = 0;
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  int32_t attempts = 0;

  bool none() const { return devices <= 0 && cpu_milli <= 0 && memory_mb <= 0 && attempts <= 0; }
};

/// Cost of a set of victims. Compared field by field, the first that differs decides; less is better.
struct VictimCost {
  int64_t spared = 0;          ///< Number of those that are ended only when others do not suffice.
  int64_t lost_gpu_ms = 0;     ///< As it is counted: see `counted_loss`.
  int64_t unsaved_gpu_ms = 0;  ///< Really.
  int64_t remaining_ms = 0;    ///< Negative: of the one that would end first, which is best spared.
  int64_t count = 0;
  int64_t priority = INT64_MIN;  ///< The highest of them.
  friend auto operator<=>(const VictimCost&, const VictimCost&) = default;
};

struct VictimChoice {
  std::vector<uint32_t>
      chosen;  ///< Indexes of the candidates, ascending. Without any one it does not suffice.
  VictimCost cost;
};

/// Whether all these candidates, by their indexes, may be ended together. One that is true of a set is true
/// of every part of it.
using VictimLimit = std::function<bool(std::span<const uint32_t>)>;

/// Chooses the jobs that a job may end to start.
class VictimSelect {
 public:
  virtual ~VictimSelect() = default;
  virtual std::string_view name() const = 0;
  /// From when on the attempt may be ended for `by`; kNever: not at all.
  virtual Time allowed_from(const State& state, const Job& by, const Attempt& attempt) const = 0;
  /// Whether the attempt may be ended for a job to which a guarantee is given back, if its tenant borrowed.
  virtual bool reclaimable(const State& state, const Attempt& attempt) const = 0;
  /// Whether it is then to be ended only when others do not suffice.
  virtual bool spared(const State& state, const Attempt& attempt, Time now) const = 0;
  /// A job that is expected to start within so long without ending anybody waits.
  virtual Duration patience() const = 0;
  /// How long a victim may take to end at least. Nobody is ended for a job that must have started by then.
  virtual Duration grace() const = 0;
  /// How long this one may: what it asks for, where that is longer.
  virtual Duration grace_of(const Job& victim) const = 0;
  /// Those whose end gives the node what it lacks at the least cost; none when all together do not.
  /// Without a limit any set will do.
  virtual std::optional<VictimChoice> choose(const Lack& lack, const std::vector<VictimView>& candidates,
                                             Time now, const VictimLimit& limit = {}) const = 0;
};

/// A device whose attempt ended is expected to be seen empty after so long.
inline constexpr Duration kDrainExpected = seconds(5);

/// Policies of one cycle. Copies share their policies, which never change.
struct PolicySet {
  std::shared_ptr<const QueueOrder> queue_order;
  std::shared_ptr<const JobOrder> job_order;
  std::vector<std::shared_ptr<const Filter>> filters;
  std::vector<std::shared_ptr<const ScorePolicy>> scores;  ///< Added up; each counts the same.
  std::shared_ptr<const RunTimes> run_times;
  std::shared_ptr<const VictimSelect> victims;  ///< Null: nobody is ended for anybody.
  /// How the tasks of a tenant's users stand among each other, and that they are packed; null: no job is one.
  std::shared_ptr<const TaskOrder> tasks;
  /// Blocked jobs, the first in line, that have the start that was found for them kept free of later work
  /// that would delay it. 1 is EASY backfilling; 0: whatever fits starts, and large jobs may starve.
  uint32_t reservations = 1;
  /// A job that has waited for so long goes before all that may still be overtaken; zero: never. Not for the
  /// order of the state, in which waiting counts by itself.
  Duration overtaking;
};

/// Policies by the names in `chosen`; the defaults for all others and for unknown names.
PolicySet policies_for(const SchedulingPolicy& chosen);

/// The policies by name; null or an empty set's member for an unknown name.
std::unique_ptr<QueueOrder> make_queue_order(std::string_view name);
std::unique_ptr<JobOrder> make_job_order(std::string_view name, const SchedulingPolicy& chosen);
std::unique_ptr<Filter> make_filter(std::string_view name);
std::unique_ptr<ScorePolicy> make_score(std::string_view name);
std::unique_ptr<RunTimes> make_run_times(std::string_view name);
std::unique_ptr<VictimSelect> make_victim_select(std::string_view name);
/// priority_aging, for tenants and for jobs; capacity; best_fit; limits; least_lost; one reservation.
PolicySet default_policies();

}  // namespace gpusched::policy
