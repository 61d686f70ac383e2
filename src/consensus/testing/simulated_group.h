#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/prng.h"
#include "consensus/replica.h"
#include "consensus/testing/memory_log_store.h"

namespace gpusched::consensus {

/// Bugs of the code above a core, to be found by the simulation.
struct PlantedBugs {
  StoreLies store;
  bool acknowledges_for_others = false;  ///< A lost append is answered as if its receiver had it.
  bool reads_without_asking = false;     ///< A leader serves a read from what it knows.
};

struct SimulationOptions {
  uint64_t seed = 1;
  uint64_t replicas = 3;
  uint64_t steps = 3'000;
  bool changes_members = false;  ///< Members are added, promoted and removed, too.
  PlantedBugs bugs;
  /// Makes the disk of a replica; null: one in memory, with the planted bugs.
  std::function<std::unique_ptr<SimulatedDisk>(uint64_t seed)> make_disk = {};
};

/// Events of one simulation, counted.
struct SimulationReport {
  std::string violation;  ///< The first promise that was broken; empty: none.
  uint64_t committed = 0;
  uint64_t reads = 0;
  uint64_t elections = 0;
  uint64_t crashes = 0;
  uint64_t installed = 0;  ///< Snapshots that a replica took from another one.
  uint64_t refused = 0;    ///< Messages that a replica refused.
  uint64_t removed = 0;    ///< Members that left the group.
  uint64_t trace = 0;      ///< Digest of all that happened: the same seed gives the same one.
};

/// A group of replicas in one process, with the real `Replica` and a network, disks and clients that fail:
/// lost, repeated, late and reordered messages, links that are cut in one direction, crashes with torn
/// writes, crashes in the middle of an operation, snapshots. Its checks know nothing of the code under test:
///
/// * no two replicas lead one term;
/// * an entry that was applied anywhere is the same everywhere, and is never lost;
/// * a linearizable read sees everything that was applied anywhere before it began;
/// * when the faults end, there is a leader, everybody has the same log, and new entries commit.
class SimulatedGroup {
 public:
  explicit SimulatedGroup(const SimulationOptions& options);
  ~SimulatedGroup();
  SimulationReport run();

 private:
  struct Node;
  struct Flight {
    uint64_t at = 0;  ///< Step of the delivery.
    uint64_t from = 0;
    uint64_t to = 0;
    std::string bytes;
    bool snapshot = false;
  };

  void add_node(uint64_t id);
  void start_node(Node& node);
  void crash(Node& node);
  void run_node(Node& node);
  void step();
  void deliver();
  void inject_faults();
  void use_clients();
  void take_snapshot(Node& node);
  void change_members();
  void heal_and_check();
  void transmit(uint64_t from, const PeerFrame& frame);
  /// The sender's transport notices later that a snapshot did not arrive.
  void later_report(uint64_t from, uint64_t to);
  void forge_answer(const PeerFrame& frame);
  Node* leader();
  Node* any_up();
  void fail(const std::string& what);
  void note(uint64_t word) { trace_.mix(word); }

  void on_committed(Node& node, const Entry& entry);
  Result<Unit> on_install(Node& node, const Snapshot& snapshot);
  void on_readable(Node& node, uint64_t read);
  void on_role(Node& node, const CoreState& state);

  friend struct Node;

  const SimulationOptions options_;
  Prng draw_;
  Members first_members_;
  std::map<uint64_t, std::unique_ptr<Node>> nodes_;
  std::deque<Flight> flights_;
  std::set<std::pair<uint64_t, uint64_t>> cut_;  ///< Links from one replica to another.
  bool faults_ = true;
  uint64_t now_ = 0;
  uint64_t loss_per_mille_ = 0;
  uint64_t next_value_ = 1;
  uint64_t next_id_ = 0;
  std::map<uint64_t, uint64_t> leader_of_term_;
  std::map<uint64_t, Entry> history_;          ///< By index, as first applied anywhere.
  std::map<uint64_t, uint64_t> digest_after_;  ///< By index: of the state of whoever applied it first.
  uint64_t applied_max_ = 0;
  SimulationReport report_;
  Digest trace_;
};

}  // namespace gpusched::consensus
