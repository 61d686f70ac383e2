#pragma once

#include <cstdint>
#include <vector>

#include "model/state.h"

/// Bounds of what a snapshot holds, for its decoder alone: what no engine could have let into its state, and
/// what would overflow when counted with.
namespace gpusched::snapshot {

inline bool between(int64_t low, int64_t value, int64_t high) { return low <= value && value <= high; }
template <typename Enum>
bool known(Enum low, Enum value, Enum high) {
  return low <= value && value <= high;
}
/// Instants that were made of others may lie behind the last one that a command may have.
bool possible(Time at);
bool possible(Duration length);
bool possible(const Part& part);
bool possible(const std::vector<Part>& parts);
bool possible(const Device& device);
/// On a device in MIG mode every share is a slice, where slices may lie; elsewhere none is.
bool possible_slices(const Device& device, const DeviceClass& kind);
bool possible(const Job& job);
bool possible(const JobArray& array);
/// With a home that is there; that of one that is revoked may be forgotten.
bool possible(const State& state, const AccessKey& key);
/// The same of one that is not active; and no other has the id.
bool possible(const State& state, const Person& person);
bool possible(const NodeIdentity& identity);
bool possible(const Amount& amount);
bool possible(const GpuTime& gpu_time);
bool possible(const DecayedUse& use);
bool possible(const Tenant& tenant);
bool possible(const Member& member);
/// The member has the device, or the share of it, by the device's own book.
bool holds(const Member& member, const Device& device, const AttemptKey& key);

}  // namespace gpusched::snapshot
