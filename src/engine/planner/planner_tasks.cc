// Where tasks of users go (docs/policies.md, "Tasks of agents").
#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "engine/planner/planner.h"

namespace gpusched {
namespace {

/// Devices that are looked at for one task before it goes where any other job would.
constexpr uint32_t kSpacesMax = 4 * limits::kCandidatesMax;

}  // namespace

void Planner::put_task_spaces(const State& state, uint32_t slot) {
  if (policies_.tasks == nullptr) return;
  const NodeInfo& node = nodes_[slot];
  const std::vector<Device>& devices = state.nodes[slot].devices;
  std::vector<TaskSpaces::Device> spaces;
  for (const auto& [kind, mask] : node.class_masks) {
    if (!node.ready || slices_.chart(kind) != nullptr) continue;
    const auto add = [&](uint32_t index, int64_t memory_mb_left, int64_t milli_left) {
      spaces.push_back({.device_class = kind,
                        .index = index,
                        .memory_mb = devices[index].memory_mb,
                        .memory_mb_left = memory_mb_left,
                        .milli = devices[index].milli_capacity,
                        .milli_left = milli_left});
    };
    for (uint64_t rest = mask & node.free_mask; rest != 0; rest &= rest - 1) {
      const auto index = static_cast<uint32_t>(std::countr_zero(rest));
      add(index, devices[index].memory_mb, devices[index].milli_capacity);
    }
    for (const SharedRoom& room : node.shared)
      if (((mask >> room.device) & 1) != 0) add(room.device, room.memory_mb, room.milli);
  }
  task_spaces_.put(slot, spaces);
}

bool Planner::is_packed(const State& state, const Candidate& candidate, const Part& part) const {
  if (policies_.tasks == nullptr || !part.is_share() || part.is_slice()) return false;
  return policies_.tasks->reader->read(state.job_at(candidate.job).spec.view()).has_value();
}

// Whether the task may start there, on that very device; notes in the candidate what keeps it from there.
bool Planner::takes_task(const State& state, Candidate& candidate, uint32_t kind,
                         const TaskSpaces::Space& space) {
  Shape& shape = shape_of(candidate.job_class);
  const Part& part = shape.parts.front();
  if (shape.refused.test(space.node)) return false;
  ++slice_.visits;
  const policy::NodeView view = view_of(state, space.node, kind, part);
  if (((view.usable_mask >> space.device) & 1) == 0) return false;
  const bool fits = std::all_of(policies_.filters.begin(), policies_.filters.end(), [&](const auto& filter) {
    return filter->check(part, view) == policy::Refusal::kNone;
  });
  if (!fits) {
    if (nodes_[space.node].class_masks.size() <= 1) shape.refused.set(space.node);
    return false;
  }
  if (!part.place.empty() && !satisfy_layout(state, space.node, part, uint64_t{1} << space.device))
    return false;
  if (nodes_[space.node].booked && meets_booking(state, candidate, space.node)) return false;
  if (!is_reserved(space.node)) return true;
  const Reservation* delayed = delayed_by(state, candidate, space.node, part, kind);
  if (delayed != nullptr) candidate.refused_by = delayed;
  return delayed == nullptr;
}

// The device with the least memory left that is enough, among those of these kinds that are not loaded.
Planner::Choice Planner::choose_packed_among(const State& state, Candidate& candidate,
                                             uint64_t device_classes) {
  const Part& part = shape_of(candidate.job_class).parts.front();
  Choice best;
  TaskSpaces::Space where;
  uint32_t looked = 0;
  for (uint64_t rest = device_classes; rest != 0; rest &= rest - 1) {
    const auto kind = static_cast<uint32_t>(std::countr_zero(rest));
    const std::set<TaskSpaces::Space>& spaces = task_spaces_.of(kind);
    const DeviceClass& device_class = state.device_classes[kind];
    const int64_t wanted_mb = device_class.share_mb_of(part, device_class.memory_mb);
    for (auto at = spaces.lower_bound({.memory_mb_left = wanted_mb}); at != spaces.end(); ++at) {
      if (best.node != Bitmap::kNone && where < *at) break;
      if (++looked > kSpacesMax) return best;
      if (!takes_task(state, candidate, kind, *at)) continue;
      where = *at;
      best = {
          .node = where.node, .device_mask = uint64_t{1} << where.device, .device_class = kind, .score = {}};
      break;
    }
  }
  return best;
}

// Tries the models in the order of the job's preference; none: the task goes where any other share would.
Planner::Choice Planner::choose_packed(const State& state, Candidate& candidate, uint64_t within) {
  const Shape& shape = shape_of(candidate.job_class);
  if (shape.by_model.empty()) return choose_packed_among(state, candidate, shape.device_classes & within);
  for (const uint64_t liked : shape.by_model) {
    const Choice best = choose_packed_among(state, candidate, liked & within);
    if (best.node != Bitmap::kNone) return best;
  }
  return {};
}

}  // namespace gpusched
