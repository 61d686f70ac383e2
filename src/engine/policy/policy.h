#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/state.h"

/// Orders, filters and scores of this release; choosing a domain for a gang and victims for a preemption have
/// no policy yet, because the engine has neither yet.
///
/// The decisions of a scheduling cycle that may change every week: each is a small class, named in
/// `registry.cc` and chosen in the configuration. Policies run on the leader only; what they chose is
/// journaled, so no journal depends on them. They are pure: integers, no clock, no chance.
namespace gpusched::policy {

/// A class of jobs whose head wants to be placed, as a policy sees it.
struct ClassView {
  const State& state;
  const JobClass& job_class;
  const Job& head;
};

/// What a node has left at this point of the cycle, this cycle's own placements taken off.
struct NodeView {
  const Node& node;
  int64_t cpu_milli_free = 0;
  int64_t memory_mb_free = 0;
  uint64_t free_mask = 0;    ///< Free devices of any class.
  uint64_t usable_mask = 0;  ///< Those of one class that fits the part.
  uint32_t attempt_count = 0;
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
enum class Refusal : uint8_t { kNone = 0, kCpu, kMemory, kGpus, kAttempts, kFeature };

/// Which class's head is placed next, among those that are not blocked: orders tenants and pools.
class QueueOrder {
 public:
  virtual ~QueueOrder() = default;
  virtual std::string_view name() const = 0;
  /// Where the class's head stands among the heads of all classes. Constant until the head changes.
  virtual OrderKey key(const ClassView& job_class) const = 0;
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

/// What one cycle uses.
struct PolicySet {
  std::unique_ptr<QueueOrder> queue_order;
  std::vector<std::unique_ptr<Filter>> filters;
  std::vector<std::unique_ptr<ScorePolicy>> scores;  ///< Added up; each counts the same.
};

/// The policies by name; null or an empty set's member for an unknown name.
std::unique_ptr<QueueOrder> make_queue_order(std::string_view name);
std::unique_ptr<Filter> make_filter(std::string_view name);
std::unique_ptr<ScorePolicy> make_score(std::string_view name);
/// priority_aging; capacity; best_fit.
PolicySet default_policies();

}  // namespace gpusched::policy
