#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/prng.h"
#include "engine/policy/fragmentation/index.h"
#include "replay/trace/placement_trace.h"

/// The published experiment about placement: more and more tasks, none of which ever ends.
namespace gpusched::replay {

/// Tasks in the order of their arrival, and nodes in the order in which ties are broken.
struct Inflation {
  std::vector<policy::TaskShape> arrivals;
  std::vector<policy::NodeSpace> nodes;
  int64_t capacity_milli = 0;
};

/// Shuffles the tasks, appends random ones of them until they ask for `per_cent` of the capacity, and
/// shuffles the nodes. The same seed gives the same on every machine.
Inflation inflate(const PlacementTrace& trace, uint64_t seed, int64_t per_cent);

/// Chooses the places of tasks.
class Placer {
 public:
  virtual ~Placer() = default;
  /// A task has arrived; once for each, before it is placed.
  virtual void arrived(const policy::TaskShape& /*task*/) {}
  /// Where the task goes; nothing: nowhere, and it is dropped. The placer keeps its own books.
  virtual std::optional<policy::FragmentationIndex::Found> place(const policy::TaskShape& task) = 0;
};

/// A random node that the task fits on, and a random device of it. Draws other numbers than `inflate` of that
/// seed.
class RandomPlacer final : public Placer {
 public:
  RandomPlacer(std::span<const policy::NodeSpace> nodes, uint64_t seed)
      : nodes_(nodes.begin(), nodes.end()), prng_(~seed) {}
  std::optional<policy::FragmentationIndex::Found> place(const policy::TaskShape& task) override;

 private:
  std::vector<policy::NodeSpace> nodes_;
  Prng prng_;
};

/// By a rule that never changes.
class RulePlacer : public Placer {
 public:
  RulePlacer(std::span<const policy::NodeSpace> nodes, std::unique_ptr<policy::PlacementRule> rule);
  std::optional<policy::FragmentationIndex::Found> place(const policy::TaskShape& task) override;
  /// The task that was placed there has ended.
  void release(const policy::TaskShape& task, uint32_t slot, uint64_t devices);
  /// Where it would go, without going there.
  std::optional<policy::FragmentationIndex::Found> best_place(const policy::TaskShape& task) {
    return index_.best(task);
  }
  const policy::FragmentationIndex& index() const { return index_; }

 protected:
  void use(std::unique_ptr<policy::PlacementRule> rule);

 private:
  std::unique_ptr<policy::PlacementRule> rule_;
  policy::FragmentationIndex index_;
};

/// By least value lost, for what has arrived so far: it knows nothing of the trace beforehand.
class LearningPlacer final : public RulePlacer {
 public:
  using Params = policy::LeastValueLost::Params;
  /// Looks at the commonest shapes up to `cover_per_mille` of all tasks.
  LearningPlacer(std::span<const policy::NodeSpace> nodes, Params params, uint32_t cover_per_mille = 950);
  void arrived(const policy::TaskShape& task) override;

 private:
  Params params_;
  uint32_t cover_per_mille_;
  policy::ShapePopularity popularity_;
  uint64_t renewed_at_ = 0;
};

/// The trace's shapes as published: those up to 95 % of all tasks, CPU, GPUs and models told apart, but
/// memory only `with_memory`.
std::vector<policy::PopularShape> known_shapes(const PlacementTrace& trace, bool with_memory);

struct InflationOutcome {
  std::vector<int64_t> allocated_milli;  ///< When so much of the capacity had arrived, by mark.
  uint64_t placed = 0;
  uint64_t refused = 0;
};

/// Lets all arrivals come to the placer. `marks` are per cent of the capacity, ascending; allocation is noted
/// when the arrived demand first reaches each: with workloads that ask for more than the last mark, the rest
/// is not part of it.
InflationOutcome replay_inflation(const Inflation& inflation, Placer& placer, std::span<const int64_t> marks);

}  // namespace gpusched::replay
