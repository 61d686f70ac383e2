#include "published/placement_replay.h"

#include <map>
#include <utility>

#include "base/check.h"

namespace gpusched::replay {
namespace {

using policy::FragmentationIndex;
using policy::NodeSpace;
using policy::PopularShape;
using policy::TaskShape;

constexpr uint32_t kCommonestPerMille = 950;

template <typename T>
void shuffle(std::vector<T>& values, Prng& prng) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[prng.below(i)]);
}

}  // namespace

Inflation inflate(const PlacementTrace& trace, uint64_t seed, int64_t per_cent) {
  CHECK(!trace.tasks.empty());
  Prng prng(seed);
  Inflation inflation{.arrivals = trace.tasks, .nodes = trace.nodes, .capacity_milli = trace.capacity_milli};
  shuffle(inflation.nodes, prng);
  shuffle(inflation.arrivals, prng);
  int64_t asked = 0;
  for (const TaskShape& task : inflation.arrivals) asked += task.total_milli();
  CHECK(asked > 0);
  while (asked * 100 < trace.capacity_milli * per_cent) {
    const TaskShape& clone = trace.tasks[prng.below(trace.tasks.size())];
    asked += clone.total_milli();
    inflation.arrivals.push_back(clone);
  }
  return inflation;
}

std::optional<FragmentationIndex::Found> RandomPlacer::place(const TaskShape& task) {
  std::vector<uint32_t> fitting;
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    if (policy::fits(task, nodes_[slot])) fitting.push_back(slot);
  }
  if (fitting.empty()) return std::nullopt;
  FragmentationIndex::Found found;
  found.slot = fitting[prng_.below(fitting.size())];
  NodeSpace& node = nodes_[found.slot];
  if (task.is_share()) {
    std::vector<uint32_t> devices;
    for (uint32_t i = 0; i < node.device_count; ++i) {
      if (policy::device_fits(task, node, i)) devices.push_back(i);
    }
    found.rate.device = devices[prng_.below(devices.size())];
  }
  found.devices = policy::devices_for(task, node, found.rate.device);
  policy::take(task, found.devices, node);
  return found;
}

RulePlacer::RulePlacer(std::span<const NodeSpace> nodes, std::unique_ptr<policy::PlacementRule> rule)
    : rule_(std::move(rule)), index_(*rule_) {
  for (uint32_t slot = 0; slot < nodes.size(); ++slot) index_.put(slot, nodes[slot]);
}

void RulePlacer::use(std::unique_ptr<policy::PlacementRule> rule) {
  index_.use(*rule);
  rule_ = std::move(rule);
}

std::optional<FragmentationIndex::Found> RulePlacer::place(const TaskShape& task) {
  const std::optional<FragmentationIndex::Found> found = index_.best(task);
  if (!found) return found;
  NodeSpace node = index_.node(found->slot);
  policy::take(task, found->devices, node);
  index_.put(found->slot, node);
  return found;
}

void RulePlacer::release(const TaskShape& task, uint32_t slot, uint64_t devices) {
  NodeSpace node = index_.node(slot);
  policy::give_back(task, devices, node);
  index_.put(slot, node);
}

LearningPlacer::LearningPlacer(std::span<const NodeSpace> nodes, Params params, uint32_t cover_per_mille)
    : RulePlacer(nodes, std::make_unique<policy::LeastValueLost>(std::span<const PopularShape>(), params)),
      params_(params),
      cover_per_mille_(cover_per_mille) {}

void LearningPlacer::arrived(const TaskShape& task) {
  popularity_.arrived(task);
  if (!popularity_.is_due(renewed_at_)) return;
  use(std::make_unique<policy::LeastValueLost>(popularity_.commonest(cover_per_mille_), params_));
  renewed_at_ = popularity_.arrivals();
}

std::vector<PopularShape> known_shapes(const PlacementTrace& trace, bool with_memory) {
  std::map<TaskShape, uint64_t> counts;
  for (TaskShape task : trace.tasks) {
    if (!with_memory) task.memory_mb = 0;
    ++counts[task];
  }
  std::vector<PopularShape> all;
  for (const auto& [shape, count] : counts) all.push_back({.shape = shape, .weight = count});
  return policy::commonest_of(std::move(all), kCommonestPerMille);
}

InflationOutcome replay_inflation(const Inflation& inflation, Placer& placer,
                                  std::span<const int64_t> marks) {
  InflationOutcome outcome;
  int64_t arrived = 0;
  int64_t allocated = 0;
  for (const TaskShape& task : inflation.arrivals) {
    arrived += task.total_milli();
    placer.arrived(task);
    if (placer.place(task)) {
      allocated += task.total_milli();
      ++outcome.placed;
    } else {
      ++outcome.refused;
    }
    while (outcome.allocated_milli.size() < marks.size() &&
           arrived * 100 >= inflation.capacity_milli * marks[outcome.allocated_milli.size()])
      outcome.allocated_milli.push_back(allocated);
    if (outcome.allocated_milli.size() == marks.size()) break;
  }
  CHECK(outcome.allocated_milli.size() == marks.size());
  return outcome;
}

}  // namespace gpusched::replay
