#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/planner/wait_reason.h"
#include "model/state.h"
#include "provision/capacity.h"

namespace gpusched::provision {

/// Waiting jobs of one class that no node can start now, as far as machines could help: neither a limit nor a
/// reservation nor a pause keeps them.
struct Demand {
  uint32_t job_class = 0;
  std::vector<Part> parts;
  int64_t jobs = 0;  ///< As many as the tenant's limits would let run, at most kJobsPerClassMax.
};
inline constexpr int64_t kJobsPerClassMax = 256;
inline constexpr std::size_t kClassesMax = 256;

/// Returns at most kClassesMax classes, the first in line first. `reasons` are the planner's, by class.
std::vector<Demand> demand_of(const State& state, const std::vector<WaitReason>& reasons);

/// Whether the reason is one that another machine could lift.
bool lifted_by_machine(const WaitReason& reason);

/// Facts about a pool's machine that is a node.
struct MachineNode {
  NodeId id;
  std::string boot_id;
  bool silent = false;      ///< Its lease ran out.
  bool in_service = false;  ///< Takes new work.
  bool drained = false;     ///< Somebody took it out of service.
  bool drained_by_us = false;
  bool kept = false;  ///< It has the label kKeepLabel.
  /// Nothing runs on it, is promised or reserved on it, and no device of it drains.
  bool quiet = false;
  std::optional<Capacity> capacity;  ///< If it is quiet and reports; also while it drains.
};
/// Nothing: there is no node of that name.
std::optional<MachineNode> machine_node(const State& state, const std::string& name);

/// Free resources of all nodes in service but those named, at most `max`; for gangs, of which members may fit
/// there. `but` is sorted.
std::vector<Capacity> free_capacities(const State& state, const std::vector<std::string>& but,
                                      std::size_t max);

}  // namespace gpusched::provision
