#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/clients.h"
#include "sim/context.h"
#include "sim/copies.h"
#include "sim/network.h"
#include "sim/sim_host.h"
#include "sim/sim_node.h"

namespace gpusched::sim {

inline constexpr int32_t kHotCelsius = 75;            ///< The threshold above which a device is hot.
inline constexpr Duration kWallOffsetMax = hours(6);  ///< How far a wall clock is set off at most.

struct RunOptions {
  uint64_t seed = 1;
  uint64_t steps = 3'000;             ///< Length of the phase with faults.
  FaultSet faults = FaultSet::all();  ///< The seed draws among these.
  bool trace = false;                 ///< Print each step.
};

struct RunResult {
  std::string failure;  ///< Empty: every promise was kept.
  uint64_t steps = 0;
  uint64_t digest = 0;  ///< Digest of everything that happened.
  std::size_t jobs = 0;
  std::size_t attempts = 0;
  uint64_t host_starts = 0;
  uint64_t records = 0;
  uint64_t refused_starts = 0;  ///< By external nodes.
  HostStory host;
  std::array<uint64_t, kFaultCount>
      struck{};     ///< How often each fault did; not those that only colour a run.
  FaultSet faults;  ///< Those that the seed used.

  bool ok() const { return failure.empty(); }
};

/// One world from its seed to its end: faults first, then everything heals and must come to rest.
class World {
 public:
  explicit World(const RunOptions& options);
  RunResult run();

 private:
  void build();
  void draw_faults();
  void draw_rules(EngineConfig& engine);
  bool changes_rules() const;
  bool keeps_limits() const;
  bool mixes_all() const;
  bool has_tasks() const;
  bool has_external() const;
  void make_external();
  void draw_tuning(HostSettings& settings);
  int32_t add_nodes();
  void add_clients(int32_t gpus_max, bool external);
  void break_something_later();
  void break_something();
  void break_disk_later();
  void break_disk(Fault fault);
  void break_folder_later();
  void break_folder(Fault fault);
  void break_host(Fault fault);
  void break_node(Fault fault);
  void break_driver(SimNode& node);
  void heat(SimNode& node, uint32_t gpu);
  void show_fault(SimNode& node, uint32_t gpu);
  void operate_later();
  void operate();
  void propose_all(std::vector<Command> commands);
  void rearrange_later();
  void rearrange(const State& state, std::vector<Command>& commands);
  void step();
  /// No promise was broken, and none became void because a device lied.
  bool goes_on() const { return !auditor_.failed() && !host_->lied_to(); }
  void heal();
  bool is_replaced(const std::string& node, const Device& device) const;
  bool converged();
  /// Why the world is not at rest, as far as one sentence can say.
  std::string why_not();
  std::string why_unfinished(JobId job);
  void come_to_rest();
  void check_rest();

  const RunOptions options_;
  Schedule schedule_;
  Prng prng_;
  Prng disk_prng_;  ///< For the draws of disks, so that they disturb no other draw.
  Prng folder_prng_;
  Prng rearranging_prng_;  ///< The same for moves of jobs and new shares of pools.
  Trace trace_;
  Auditor auditor_;
  Context context_;
  std::unique_ptr<SimHost> host_;
  std::unique_ptr<Network> network_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::unique_ptr<Copies> copies_;
  std::unique_ptr<Clients> clients_;
  std::vector<Fault> active_;           ///< Those that something must start.
  std::vector<Fault> active_on_disks_;  ///< Faults of disks.
  std::vector<Fault> active_on_folder_;
  int64_t fault_pause_ms_ = 1'000;
  bool healed_ = false;
  std::array<uint64_t, kFaultCount> struck_{};
  bool wild_ = false;  ///< Clients ask for what no door lets them think of.
  Time rest_after_;    ///< Late repairs are done by then.
};

/// Runs one seed.
RunResult run_seed(const RunOptions& options);

}  // namespace gpusched::sim
