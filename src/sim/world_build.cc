#include "model/mig.h"
#include "sim/world.h"

// Builds the parts of a seed's world.
namespace gpusched::sim {
namespace {

constexpr uint32_t kDiskFaultShare = 250;
constexpr uint64_t kMixes = 217;
constexpr uint64_t kTasks = 447339;
constexpr uint64_t kExternal = 46111281;

bool is_passive(Fault fault) {
  switch (fault) {
    case Fault::kDelay:
    case Fault::kDuplicate:
    case Fault::kReorder:
    case Fault::kBusyDevice:
    case Fault::kSlowDriver:
    case Fault::kStartFails:
    case Fault::kGpuDaemons:
      return true;
    default:
      return false;
  }
}

}  // namespace

// Each draw has its place in the order of all: a seed's world is what they make together.
void World::build() {
  draw_faults();
  HostSettings settings;
  draw_rules(settings.engine);
  draw_tuning(settings);
  auditor_.expect_grace(settings.tuning.grace, settings.tuning.preempt_grace_max);
  auditor_.expect_tasks(settings.tuning.tasks);
  host_ = std::make_unique<SimHost>(context_, settings);
  network_ = std::make_unique<Network>(context_, *host_);
  host_->on_died([this] {
    network_->host_died();
    schedule_.in(context_.some_ms(20, healed_ ? 1'000 : 12'000), [this] { host_->start(); });
  });
  const int32_t gpus_max = add_nodes();
  // Older rules take a copy for the node that it was.
  if (settings.engine.feature_level < 6) std::erase(active_, Fault::kCopy);
  // Where GPUs change their mode, what was accepted on a machine's other name might be placed nowhere later.
  if (context_.on(Fault::kGpu)) std::erase(active_, Fault::kCopy);
  if (context_.on(Fault::kGpu) && prng_.chance(150)) nodes_[prng_.below(3)]->machine().set_black_hole(true);
  const bool external = settings.engine.feature_level >= 12 && has_external();
  if (external) make_external();
  add_clients(gpus_max, external);
}

void World::draw_faults() {
  // Each seed uses some of the faults, so that rare ones are not always drowned by the others.
  const auto share = static_cast<uint32_t>(prng_.between(100, 900));
  for (std::size_t i = 0; i < kFaultCount; ++i) {
    const auto fault = static_cast<Fault>(i);
    const bool of_folder = fault >= kFirstFolderFault;
    const bool of_disks = fault >= kFirstDiskFault && !of_folder;
    const bool drawn = of_folder  ? folder_prng_.chance(kDiskFaultShare)
                       : of_disks ? disk_prng_.chance(kDiskFaultShare)
                                  : prng_.chance(share);
    if (!drawn || !options_.faults.has(fault)) continue;
    context_.faults.add(fault);
    if (is_passive(fault)) continue;
    if (of_folder) {
      active_on_folder_.push_back(fault);
    } else if (of_disks) {
      active_on_disks_.push_back(fault);
    } else {
      active_.push_back(fault);
    }
  }
  fault_pause_ms_ = prng_.between(200, 4'000);
}

/// Drawn apart, so that no other draw moves.
bool World::changes_rules() const { return Prng(options_.seed * 0xE7037ED1A0B428DBULL + 1).chance(300); }

/// Half of those have one line of jobs whose limits are told apart from all else that may stand before them:
/// nobody is owed anything, pools are strict, and jobs are expected to run as long as they may.
bool World::keeps_limits() const {
  return changes_rules() && Prng(options_.seed * 0xE7037ED1A0B428DBULL + 2).chance(500);
}

/// Half of the other half have gangs and shares beside moves, other orders of tenants, and changes of all
/// that may be changed of a job. Older worlds do not; of tests/sim-seeds.txt none was made one of these.
bool World::mixes_all() const {
  return changes_rules() && !keeps_limits() &&
         Prng(options_.seed * 0xE7037ED1A0B428DBULL + kMixes).chance(500);
}

/// Some worlds have tasks of users, but for those whose jobs have no shares of GPUs. Older worlds do not; of
/// tests/sim-seeds.txt none was made one of these.
bool World::has_tasks() const {
  return (!changes_rules() || mixes_all()) &&
         Prng(options_.seed * 0xE7037ED1A0B428DBULL + kTasks).chance(200);
}

/// Some worlds of the newest rules have external nodes. Older worlds do not; of tests/sim-seeds.txt none was
/// made one of these.
bool World::has_external() const {
  return Prng(options_.seed * 0xE7037ED1A0B428DBULL + kExternal).chance(200);
}

/// One external node, or two, which refuse some starts. The first node takes all other jobs.
void World::make_external() {
  Prng prng(options_.seed * 0xE7037ED1A0B428DBULL + kExternal + 1);
  const std::size_t count = prng.chance(500) ? 2 : 1;
  for (std::size_t i = 1; i <= count; ++i)
    nodes_[i]->make_external(static_cast<uint32_t>(prng.between(100, 900)));
}

void World::draw_rules(EngineConfig& engine) {
  engine.feature_level = kFeatureLevel;
  engine.drain_limit = milliseconds(prng_.between(3'000, 30'000));
  engine.feature_level = prng_.between(0, kFeatureLevel);
  // Half of the worlds have the newest rules. Drawn apart, so that no other draw moves.
  if (Prng(options_.seed * 0xA0761D6478BD642FULL + 1).chance(500)) engine.feature_level = kFeatureLevel;
  static constexpr const char* kOrders[] = {"priority_aging", "deadline", "shortest", "least_attained"};
  engine.policy.job_order = kOrders[prng_.below(4)];
  engine.policy.attained_levels = {1, 5, 20};
  engine.policy.overtaking = milliseconds(prng_.between(0, 20'000));
  engine.policy.preempt_by_attained = prng_.chance(500);
  static constexpr const char* kPlacements[] = {"", "", "fgd", "least_value_lost"};
  engine.policy.placement = kPlacements[prng_.below(4)];
  if (prng_.chance(500)) engine.policy.reservations = 0;
  if (prng_.chance(500)) engine.auto_drain_percent = prng_.between(1, 50);
  engine.lost_after = milliseconds(prng_.between(5'000, 60'000));
  if (prng_.chance(200)) engine.queue_size_max = prng_.between(5, 40);
  if (prng_.chance(150)) {
    engine.admission = {.rate_milli = prng_.between(200, 3'000),
                        .burst = prng_.between(1, 10),
                        .daily = prng_.chance(300) ? prng_.between(20, 200) : 0,
                        .soft_queue = prng_.chance(500) ? prng_.between(3, 20) : 0,
                        .throttled_milli = prng_.between(100, 2'000)};
  }
  if (prng_.chance(200)) {
    const int64_t online = prng_.between(200, 800);
    engine.pools = {.online_milli = online,
                    .batch_milli = 1'000 - online,
                    .lend = true};  // Strict ones may be too small.
  }
  if (prng_.chance(300)) engine.finished_jobs_max = prng_.between(0, 30);
  if (!changes_rules()) return;
  engine.interactive_gpus_max = 2;
  engine.interactive_runtime_max = seconds(30);
  engine.interactive_wait = seconds(5);
  if (!keeps_limits()) return;
  engine.policy.job_order = "priority_aging";
  engine.policy.run_times = "limits";
  engine.policy.reservations.reset();
  engine.pools.lend = false;
}

void World::draw_tuning(HostSettings& settings) {
  settings.tuning.node_lease = milliseconds(prng_.between(2'000, 10'000));
  settings.tuning.heat = {.threshold_celsius = kHotCelsius,
                          .hysteresis_celsius = static_cast<int32_t>(prng_.between(1, 20)),
                          .readings = static_cast<int32_t>(prng_.between(1, 4))};
  settings.tuning.grace = milliseconds(prng_.between(100, 5'000));
  settings.tuning.victims.protection = milliseconds(prng_.between(0, 3'000));
  settings.tuning.victims.recent = milliseconds(prng_.between(0, 10'000));
  settings.tuning.victims.patience = milliseconds(prng_.between(0, 5'000));
  settings.snapshot_bytes = static_cast<uint64_t>(prng_.between(1'000, 40'000));
  settings.disk_seed = disk_prng_.next();
  settings.segment_bytes = uint64_t{65'536} << disk_prng_.below(3);
  if (has_tasks())
    settings.tuning.tasks = some_task_order(Prng(options_.seed * 0xE7037ED1A0B428DBULL + kTasks + 1));
  settings.tuning.clock_jump_max = kWallOffsetMax * 2 + hours(1);
  // A volume that the journal fills by itself, long before so much of it that a snapshot is due.
  if (options_.faults.has(Fault::kDiskFull) && folder_prng_.chance(100)) {
    settings.segment_bytes = 32'768;
    settings.snapshot_bytes = uint64_t{1} << 40;
    settings.volume_bytes = static_cast<uint64_t>(folder_prng_.between(500'000, 1'000'000));
  }
}

/// The most GPUs that one of them has.
int32_t World::add_nodes() {
  const std::vector<std::pair<std::string, int64_t>> kinds = {
      {"NVIDIA A100-SXM4-80GB", 81'920}, {"NVIDIA H100 80GB HBM3", 81'559}, {"Tesla T4", 15'360}};
  int32_t gpus_max = 1;
  DeviceFacts first;
  for (std::size_t i = 0; i < 3; ++i) {
    const int64_t count = prng_.between(i == 0 ? 1 : 0, prng_.chance(300) ? 8 : 4);
    gpus_max = std::max(gpus_max, static_cast<int32_t>(count));
    const std::size_t kind = prng_.below(kinds.size());
    std::vector<DeviceFacts> devices;
    const bool sliced = prng_.chance(300);
    for (int64_t device = 0; device < count; ++device) {
      // Some nodes have devices of two kinds.
      const auto& [model, memory_mb] = kinds[(kind + (prng_.chance(100) ? 1 : 0)) % kinds.size()];
      devices.push_back({.uuid = "GPU-" + std::to_string(i) + "-" + std::to_string(device),
                         .model = model,
                         .memory_mb = memory_mb,
                         .mig = sliced && prng_.chance(700) && mig::table_of(model, memory_mb) != nullptr});
    }
    if (i == 0) first = devices.front();
    nodes_.push_back(std::make_unique<SimNode>(context_, *network_, i, std::move(devices),
                                               prng_.between(4, 32) * 1'000, prng_.between(16, 256) * 1'000));
    network_->add(*nodes_.back());
  }
  copies_ = std::make_unique<Copies>(context_, *network_, nodes_, first);
  return gpus_max;
}

void World::add_clients(int32_t gpus_max, bool external) {
  Demand demand{.pause_ms = prng_.between(30, 600),
                .gpus_max = gpus_max,
                .runtime_max_ms = prng_.between(100, 30'000),
                .models = {"A100", "H100", "T4", "a100-sxm4", "nvidia"}};
  if (prng_.chance(500)) demand.share_chance = 400;
  if (prng_.chance(500)) demand.slice_chance = prng_.chance(500) ? 200 : 700;
  if (prng_.chance(600)) demand.gang_chance = prng_.chance(500) ? 100 : 500;
  if (prng_.chance(500)) demand.wild_chance = static_cast<int32_t>(prng_.between(20, 300));
  demand.changes_rules = changes_rules();
  demand.keeps_limits = keeps_limits();
  demand.moves_jobs = changes_rules() && !keeps_limits();
  demand.mixes_all = mixes_all();
  demand.has_tasks = has_tasks();
  if (external) demand.external_chance = 500;
  if (changes_rules() && !mixes_all()) demand.share_chance = demand.slice_chance = demand.gang_chance = 0;
  wild_ = demand.wild_chance > 0;
  clients_ = std::make_unique<Clients>(context_, *host_, std::move(demand));
}

}  // namespace gpusched::sim
