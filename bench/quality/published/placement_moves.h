#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "published/placement_replay.h"

namespace gpusched::replay {

/// Places as `LearningPlacer` does; and where a task with GPUs fits nowhere, makes room by moving one running
/// task to another node, if that is enough: the one that has least of GPUs, then of CPU. So many moves as
/// `per_mille` of the tasks placed so far are allowed.
class MovingPlacer final : public Placer {
 public:
  MovingPlacer(std::span<const policy::NodeSpace> nodes, LearningPlacer::Params params, uint64_t per_mille)
      : placer_(nodes, params), per_mille_(per_mille), running_(nodes.size()) {}

  void arrived(const policy::TaskShape& task) override { placer_.arrived(task); }
  std::optional<policy::FragmentationIndex::Found> place(const policy::TaskShape& task) override;
  uint64_t moves() const { return moves_; }

 private:
  struct Running {
    policy::TaskShape task;
    uint64_t devices = 0;
  };
  struct Move {
    uint32_t slot = 0;
    std::size_t which = 0;
  };
  std::optional<Move> find_move(const policy::TaskShape& task);
  bool frees_enough(const policy::TaskShape& task, uint32_t slot, const Running& running) const;
  void remember(const policy::TaskShape& task, const policy::FragmentationIndex::Found& found);

  LearningPlacer placer_;
  uint64_t per_mille_;
  std::vector<std::vector<Running>> running_;  ///< By slot.
  uint64_t placed_ = 0;
  uint64_t moves_ = 0;
};

}  // namespace gpusched::replay
