// Placement by what is left for those that come: where the configuration wants it, instead of best fit.
#include <algorithm>
#include <bit>

#include "base/limits.h"
#include "engine/planner/planner.h"

namespace gpusched {
namespace {

using policy::NodeSpace;
using policy::NodeView;
using policy::TaskShape;

/// Jobs of one class that are told to the policy that learns what comes, at the planner's start.
constexpr uint64_t kKnownOfClassMax = 64;

TaskShape shape_of_part(const Part& part, uint64_t device_classes) {
  TaskShape shape{.cpu_milli = part.cpu_milli, .memory_mb = part.memory_mb, .gpu_count = part.gpu_count};
  if (part.gpu_count == 0) return shape;
  shape.gpu_milli = part.is_share() ? part.gpu_milli : policy::kWholeMilli;
  shape.device_memory_mb = part.is_share() ? part.gpu_share_mb : 0;
  shape.device_classes = device_classes;
  return shape;
}

uint64_t classes_serving(const State& state, const Part& part) {
  uint64_t mask = 0;
  for (std::size_t kind = 0; kind < state.device_classes.size(); ++kind) {
    if (state.device_classes[kind].serves(part)) mask |= uint64_t{1} << kind;
  }
  return mask;
}

}  // namespace

void Planner::begin_fragments(const State& state) {
  fragments_ = policy::FragmentationPlacement::make(chosen_.placement);
  learn_arrivals(state);
}

// From the jobs that the state still knows, by the classes of devices that there are: at the start, and when
// a node brings another class.
void Planner::learn_arrivals(const State& state) {
  if (!fragments_) return;
  fragments_->forget_arrivals();
  fragments_classes_ = state.device_classes.size();
  for (const JobClass& known : state.classes) {
    if (known.references == 0 || known.parts.size() != 1 || is_gang(known.parts)) continue;
    const TaskShape shape = shape_of_part(known.parts.front(), classes_serving(state, known.parts.front()));
    for (uint64_t i = 0; i < std::min(known.references, kKnownOfClassMax); ++i) fragments_->arrived(shape);
  }
}

void Planner::note_arrival(const State& state, JobId id) {
  const Job* job = state.jobs.find(id);
  if (!fragments_ || job == nullptr) return;
  const ClassInfo& entry = info(job->job_class);
  if (entry.state == ClassState::kIdle) return;  // It is held, or to begin later: that is not learned from.
  Shape& shape = shapes_[entry.shape];
  if (shape.gang.has_value()) return;  // Placed apart.
  refresh_device_classes(state, shape);
  fragments_->arrived(shape_of_part(shape.parts.front(), shape.device_classes));
}

void Planner::put_spaces(const State& state, uint32_t slot) {
  if (!fragments_) return;
  const NodeInfo& info = nodes_[slot];
  if (!info.ready) return fragments_->put(slot, {});
  const Node& node = state.nodes[slot];
  NodeSpace empty;
  empty.cpu_milli = info.cpu_milli_free;
  empty.memory_mb = info.memory_mb_free;
  std::vector<NodeSpace> spaces;
  for (const auto& [device_class, mask] : info.class_masks) {
    NodeSpace& space = spaces.emplace_back(empty);
    space.device_class = device_class;
    space.device_count = static_cast<uint32_t>(node.devices.size());
    for (uint64_t rest = mask & info.free_mask; rest != 0; rest &= rest - 1) {
      const auto device = static_cast<std::size_t>(std::countr_zero(rest));
      space.milli[device] = static_cast<uint16_t>(policy::kWholeMilli);
      space.device_memory_mb[device] =
          static_cast<uint32_t>(std::min<int64_t>(node.devices[device].memory_mb, UINT32_MAX));
    }
    for (const SharedRoom& room : info.shared) {
      if (((mask >> room.device) & 1) == 0) continue;
      space.milli[room.device] = static_cast<uint16_t>(std::max<int64_t>(room.milli, 0));
      space.device_memory_mb[room.device] =
          static_cast<uint32_t>(std::clamp<int64_t>(room.memory_mb, 0, UINT32_MAX));
    }
  }
  if (spaces.empty()) spaces.push_back(empty);
  fragments_->put(slot, spaces);
}

// True if fragmentation may decide. A job's wishes for its node go before what others may want of it: models
// in an order, and links between devices.
bool Planner::goes_by_fragments(const Shape& shape) {
  const Part& part = shape.parts.front();
  return shape.by_model.empty() && part.place.empty() && !part.is_slice() &&
         (part.gpu_count <= 1 || shape.links_best() == 0);
}

// The best that passes; nothing when none of the first does: then the buckets are gone through.
Planner::Choice Planner::choose_by_fragments(const State& state, Candidate& candidate) {
  Shape& entry = shape_of(candidate.job_class);
  const Part& part = entry.parts.front();
  const auto accept = [&](const policy::FragmentationPlacement::Found& found) {
    ++slice_.visits;
    const uint32_t kind = part.gpu_count == 0 ? FreeIndex::kNoDevices : found.device_class;
    if (entry.excluded.test(found.node) || !passes(state, found.node, kind, part)) return false;
    if (part.is_share()) {  // Room for a share that asks for its part of the memory is not in the index.
      const auto index = static_cast<std::size_t>(std::countr_zero(found.devices));
      const NodeView view = view_of(state, found.node, kind, part);
      if (((view.usable_mask >> index) & 1) == 0) return false;
    }
    if (nodes_[found.node].booked && meets_booking(state, candidate, found.node)) return false;
    if (!is_reserved(found.node)) return true;
    const Reservation* delayed = delayed_by(state, candidate, found.node, part, kind);
    if (delayed != nullptr) candidate.refused_by = delayed;
    return delayed == nullptr;
  };
  const auto found = fragments_->best(shape_of_part(part, entry.device_classes), accept);
  Choice choice;
  if (!found) return choice;
  choice.node = found->node;
  choice.device_class = part.gpu_count == 0 ? FreeIndex::kNoDevices : found->device_class;
  const NodeView view = view_of(state, choice.node, choice.device_class, part);
  choice.device_mask = part.is_share() ? found->devices : pick_devices(view, choice.node, part).mask;
  return choice;
}

}  // namespace gpusched
