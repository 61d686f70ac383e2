#pragma once

#include <optional>
#include <vector>

#include "forecast/move_places.h"
#include "forecast/moves.h"

/// The search for the cheapest moves of one job. Internal to `plan_moves`.
namespace gpusched::forecast {

/// A running job on a node where room is looked for.
struct Mover {
  const Job* job = nullptr;
  const Attempt* attempt = nullptr;
  int32_t devices = 0;  ///< Devices suitable for the waiting job.
  uint64_t mask = 0;    ///< The same.
  bool saved = false;
  MovePrice price;
};

class MoveSearch {
 public:
  MoveSearch(const World& world, const MoveOptions& options, Places& places, Work& work)
      : world_(world), options_(options), places_(places), work_(work) {}

  /// The cheapest moves that start the job, as `decide` would take them; nothing when there are none, or the
  /// work is used up. The places that they take are taken then.
  std::optional<MoveProposal> cheapest(const Job& job);
  /// Returns what is missing on the node that comes nearest.
  Unmoved nearest(const Job& job);
  /// Whether these very moves hold.
  bool holds(const MoveProposal& proposal);
  /// Something was left untried for want of work.
  bool stopped_early() const { return stopped_early_ || work_.over; }

  /// Whether moves may be looked for: it waits for room on one node.
  static bool may_gain(const World& world, const Job& job);

 private:
  struct Lack {
    int64_t devices = 0;
    int64_t cpu_milli = 0;
    int64_t memory_mb = 0;
    int64_t attempts = 0;
    bool none() const { return devices <= 0 && cpu_milli <= 0 && memory_mb <= 0 && attempts <= 0; }
  };
  /// Room for the waiting job on one node, in devices of one class.
  struct Spot {
    uint32_t slot = 0;
    uint32_t device_class = 0;
    uint64_t serves = 0;  ///< Devices that would do, free or held.
    Lack lack;
  };
  /// Jobs of one node that together would give what it lacks.
  struct Set {
    MovePrice price;
    uint32_t slot = 0;
    uint32_t device_class = 0;
    uint64_t chosen = 0;  ///< Bits of the chosen elements of `movers_on`.
  };
  /// Whether a job of these needs fits on another node than its own.
  struct Elsewhere {
    uint32_t job_class = 0;
    int64_t max_runtime_ns = 0;
    uint32_t slot = 0;    ///< First node where it fits.
    uint32_t places = 0;  ///< 1: no other node; 2: there are others.
  };

  std::optional<MoveObstacle> obstacle(const Job& gains, const AttemptKey& key);
  bool has_other_place(const Job& job, uint32_t slot);
  std::optional<Spot> spot_on(const Part& part, uint32_t slot, uint32_t device_class) const;
  uint64_t fit_of_class(uint32_t slot, uint32_t device_class) const;
  static bool helps(const Lack& lack, const Member& member, uint64_t serves);
  static void give(Lack& lack, const Mover& mover, int64_t sign);
  /// The jobs there that could move and would help, at most 64, in the order of their ids.
  std::vector<Mover> movers_on(const Job& job, const Spot& spot);
  void add_sets(const Job& job, const Spot& spot, std::vector<Set>& sets);
  void subsets(const Spot& spot, const std::vector<Mover>& movers, std::vector<Set>& sets);
  void greedy(const Spot& spot, const std::vector<Mover>& movers, std::vector<Set>& sets) const;
  bool settle(const std::vector<Mover>& movers, uint32_t from, std::size_t index, std::vector<Place>& chosen,
              uint32_t& tries);
  std::optional<MoveProposal> carried_out(const Job& job, const Set& set);
  MoveProposal proposal_of(const Job& job, const Set& set, const std::vector<Mover>& movers,
                           const std::vector<Place>& chosen) const;
  std::vector<std::pair<uint32_t, uint64_t>> kinds_on(const Part& part, uint32_t slot) const;

  const World& world_;
  const MoveOptions& options_;
  Places& places_;
  Work& work_;
  bool stopped_early_ = false;
  std::vector<JobId> used_;  ///< Jobs in proposals already found.
  std::vector<Elsewhere> elsewhere_;
};

}  // namespace gpusched::forecast
