#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "forecast/moves.h"

/// Free places for jobs that move. Internal to the search for moves.
namespace gpusched::forecast {

/// Free resources of a node.
struct Room {
  bool open = false;   ///< In service and not held exclusively.
  bool taken = false;  ///< Another proposal gathers devices here.
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  int64_t attempts = 0;
  std::vector<std::pair<uint32_t, uint64_t>> free;  ///< Free devices by their class.
};

/// One place for one job.
struct Place {
  uint32_t slot = 0;
  std::size_t kind = 0;  ///< An index into the room's `free`; of a job without GPUs meaningless.
  uint64_t mask = 0;
};

/// All nodes' rooms, which shrink as places are given away. Not thread-safe.
class Places {
 public:
  explicit Places(const World& world);

  const Room& room(uint32_t slot) const { return rooms_[slot]; }
  /// From now on moves are looked for so that this job can start: what is kept free for it stands in no way.
  void look_for(const Job& gains) { gains_ = gains.job_class; }
  /// By the node's labels, features, bookings and reservations the job may run there at all.
  bool allows(const Job& job, uint32_t slot) const;
  /// The fitting devices of this class are as many, and the rest is enough too.
  bool fits(const Part& part, const Room& room, std::size_t kind) const;
  /// Everywhere else that the job fits, the tightest first: fewest free devices left, then the node that
  /// registered first; without their devices. Costs a look a node.
  std::vector<Place> others(const Job& job, uint32_t but, Work& work) const;
  /// The place's free devices that the job would get: the best linked ones.
  uint64_t devices_at(const Part& part, const Place& place) const;
  bool anywhere_else(const Job& job, uint32_t but, Work& work) const;

  void take(const Part& part, const Place& place) { count(part, place, -1); }
  void give_back(const Part& part, const Place& place) { count(part, place, 1); }
  /// Excludes the node as a destination and as a place to collect free GPUs.
  void close(uint32_t slot) { rooms_[slot].taken = true; }

 private:
  void count(const Part& part, const Place& place, int64_t sign);

  const World& world_;
  uint32_t gains_ = 0;  ///< A class of jobs.
  std::vector<Room> rooms_;
};

}  // namespace gpusched::forecast
