#include "published/placement_moves.h"

#include <tuple>

#include "base/check.h"

namespace gpusched::replay {

using policy::FragmentationIndex;
using policy::NodeSpace;
using policy::TaskShape;

void MovingPlacer::remember(const TaskShape& task, const FragmentationIndex::Found& found) {
  running_[found.slot].push_back({.task = task, .devices = found.devices});
  ++placed_;
}

bool MovingPlacer::frees_enough(const TaskShape& task, uint32_t slot, const Running& running) const {
  NodeSpace node = placer_.index().node(slot);
  // Cheap first: most nodes lack what one task could give back.
  if (node.cpu_milli + running.task.cpu_milli < task.cpu_milli) return false;
  if (node.memory_mb + running.task.memory_mb < task.memory_mb) return false;
  policy::give_back(running.task, running.devices, node);
  return policy::fits(task, node);
}

std::optional<MovingPlacer::Move> MovingPlacer::find_move(const TaskShape& task) {
  // Whether a kind of task fits anywhere else is the same for all of its kind.
  std::map<TaskShape, bool> goes_elsewhere;
  std::optional<Move> best;
  std::tuple<int64_t, int64_t> least;
  for (uint32_t slot = 0; slot < running_.size(); ++slot) {
    for (std::size_t which = 0; which < running_[slot].size(); ++which) {
      const Running& running = running_[slot][which];
      const std::tuple<int64_t, int64_t> cost{running.task.total_milli(), running.task.cpu_milli};
      // To move as much as is won, or more, wins nothing.
      if (running.task.total_milli() >= task.total_milli() || (best && cost >= least)) continue;
      const auto [known, added] = goes_elsewhere.try_emplace(running.task, false);
      // A full node cannot be where it goes: what fits somewhere fits on another one, or on this one as well.
      if (added) known->second = placer_.best_place(running.task).has_value();
      if (!known->second || policy::fits(running.task, placer_.index().node(slot))) continue;
      if (!frees_enough(task, slot, running)) continue;
      best = Move{.slot = slot, .which = which};
      least = cost;
    }
  }
  return best;
}

std::optional<FragmentationIndex::Found> MovingPlacer::place(const TaskShape& task) {
  std::optional<FragmentationIndex::Found> found = placer_.place(task);
  if (!found && task.gpu_count > 0 && (moves_ + 1) * 1000 <= placed_ * per_mille_) {
    const std::optional<Move> move = find_move(task);
    if (move) {
      std::vector<Running>& there = running_[move->slot];
      const Running moved = there[move->which];
      there.erase(there.begin() + static_cast<std::ptrdiff_t>(move->which));
      // Where it fits is another node; then there is room here.
      const auto new_place = placer_.place(moved.task);
      CHECK(new_place.has_value());
      CHECK(new_place->slot != move->slot);
      running_[new_place->slot].push_back({.task = moved.task, .devices = new_place->devices});
      placer_.release(moved.task, move->slot, moved.devices);
      ++moves_;
      found = placer_.place(task);
      CHECK(found.has_value());
    }
  }
  if (found) remember(task, *found);
  return found;
}

}  // namespace gpusched::replay
