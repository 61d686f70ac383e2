#include "sim/world.h"

#include <algorithm>
#include <utility>

#include "codec/snapshot.h"
#include "engine/policy/policies.h"
#include "forecast/moves.h"
#include "forecast/world.h"

namespace gpusched::sim {
namespace {

constexpr uint64_t kFullCheckSteps = 256;
constexpr uint64_t kSnapshotCheckSteps = 2'048;
constexpr uint64_t kDecodeCheckSteps = 128;
constexpr uint64_t kRestStepsMax = 400'000;
constexpr Duration kRestMax = hours(2);
constexpr Duration kQuiet = seconds(60);
constexpr uint64_t kQuietAdvancesMax = 100;
constexpr uint64_t kMoveWorkMax = 60'000;  // For one search for moves; its finds by then are enough.

}  // namespace

World::World(const RunOptions& options)
    : options_(options),
      prng_(options.seed * 0x9E3779B97F4A7C15ULL + 0x632BE59BD9B4E019ULL),
      disk_prng_(options.seed * 0xD1342543DE82EF95ULL + 0x2545F4914F6CDD1DULL),
      folder_prng_(options.seed * 0x2127599BF4325C37ULL + 0x880355F21E6D1965ULL),
      rearranging_prng_(options.seed * 0x9FB21C651E98DF25ULL + 0x4CF5AD432745937FULL),
      trace_(schedule_, options.trace),
      auditor_(schedule_),
      context_{.schedule = schedule_, .prng = prng_, .trace = trace_, .auditor = auditor_, .faults = {}} {
  build();
}

// Faults.

void World::break_something_later() {
  if (active_.empty()) return;
  schedule_.in(context_.some_ms(0, 2 * fault_pause_ms_), [this] {
    if (healed_) return;
    break_something();
    break_something_later();
  });
}

void World::break_something() {
  const Fault fault = active_[prng_.below(active_.size())];
  trace_.note("fault", {static_cast<uint64_t>(fault)}, to_string(fault));
  struck_[static_cast<std::size_t>(fault)] += 1;
  switch (fault) {
    case Fault::kHostKill:
    case Fault::kHostPower:
    case Fault::kDiskFull:
    case Fault::kSyncFails:
    case Fault::kClockStep:
      return break_host(fault);
    case Fault::kPause:
      if (prng_.chance(400)) return host_->pause(context_.some_ms(50, 12'000));
      return nodes_[prng_.below(nodes_.size())]->pause(context_.some_ms(50, 20'000));
    case Fault::kCopy:
      return prng_.chance(600) ? copies_->copy_a_machine() : copies_->rename_an_agent();
    default:
      return break_node(fault);
  }
}

// So do the folder and its clock.

void World::break_folder_later() {
  if (active_on_folder_.empty()) return;
  schedule_.in(milliseconds(folder_prng_.between(0, 4 * fault_pause_ms_)), [this] {
    if (healed_) return;
    break_folder(active_on_folder_[folder_prng_.below(active_on_folder_.size())]);
    break_folder_later();
  });
}

void World::break_folder(Fault fault) {
  trace_.note("fault", {static_cast<uint64_t>(fault)}, to_string(fault));
  struck_[static_cast<std::size_t>(fault)] += 1;
  switch (fault) {
    case Fault::kClockYears: {
      if (host_->clock_is_wrong()) return host_->right_clock();
      if (auditor_.position() == 0) return;  // There is nothing yet to compare a clock with.
      const Duration by = hours(24 * 365) * folder_prng_.between(1, 120);
      const bool down = folder_prng_.chance(700);
      host_->wrong_clock(folder_prng_.chance(700) ? by : Duration{} - by, down);
      if (down) host_->crash(folder_prng_.chance(300));
      return schedule_.in(milliseconds(folder_prng_.between(100, 90'000)), [this] { host_->right_clock(); });
    }
    case Fault::kSecondHost:
      return host_->try_second(folder_prng_.chance(300));
    case Fault::kOlderHost:
      host_->start_older_next();
      return host_->crash(false);
    case Fault::kHostStop:
      return host_->stop();
    case Fault::kEncoderErrs:
      return host_->spoil_snapshots(static_cast<int>(folder_prng_.between(1, 4)));
    default:
      UNREACHABLE();
  }
}

// Disks break on their own.

void World::break_disk_later() {
  if (active_on_disks_.empty()) return;
  schedule_.in(milliseconds(disk_prng_.between(0, 4 * fault_pause_ms_)), [this] {
    if (healed_) return;
    break_disk(active_on_disks_[disk_prng_.below(active_on_disks_.size())]);
    break_disk_later();
  });
}

void World::break_disk(Fault fault) {
  trace_.note("fault", {static_cast<uint64_t>(fault)}, to_string(fault));
  struck_[static_cast<std::size_t>(fault)] += 1;
  switch (fault) {
    case Fault::kDiskFails:
      return host_->disk().break_a_call();
    case Fault::kDiskLies:
      return host_->disk().lie();
    case Fault::kDecay:
      return host_->disk().decay();
    case Fault::kAgentDisk:
      return nodes_[disk_prng_.below(nodes_.size())]->break_disk(disk_prng_);
    default:
      UNREACHABLE();
  }
}

void World::break_host(Fault fault) {
  if (fault == Fault::kHostKill || fault == Fault::kHostPower)
    return host_->crash(fault == Fault::kHostPower);
  if (fault == Fault::kSyncFails) return host_->disk().fail_next_sync();
  if (fault == Fault::kDiskFull) {
    host_->disk().fill(prng_.below(20'000));
    host_->watch_volume();
    return schedule_.in(context_.some_ms(100, 30'000), [this] { host_->disk().empty(); });
  }
  const Duration by = milliseconds(prng_.between(-hours(2).ms(), hours(2).ms()));
  const Duration after = host_->wall_offset() + by;
  if (after < kWallOffsetMax && Duration{} - kWallOffsetMax < after) host_->step_clock(by);
}

void World::break_node(Fault fault) {
  const std::size_t index = prng_.below(nodes_.size());
  SimNode& node = *nodes_[index];
  switch (fault) {
    case Fault::kCut:
      return network_->cut(index);
    case Fault::kStall:
      return network_->stall(index, context_.some_ms(100, 40'000));
    case Fault::kAgentKill:
      node.kill_agent();
      return schedule_.in(context_.some_ms(20, 20'000), [&node] { node.start_agent(); });
    case Fault::kReboot:
    case Fault::kReinstall:
      if (!node.powered()) return;
      node.power_off();
      if (fault == Fault::kReinstall) {
        node.reinstall();
        if (prng_.chance(500)) node.machine().replace_gpus();
      }
      return schedule_.in(context_.some_ms(500, prng_.chance(300) ? 120'000 : 20'000),
                          [&node] { node.power_on(); });
    case Fault::kShimDeath:
      return prng_.chance(700) ? node.machine().kill_a_shim() : node.machine().stop_a_shim();
    case Fault::kGpu: {
      if (node.machine().gpu_count() == 0) return;
      const auto gpu = static_cast<uint32_t>(prng_.below(node.machine().gpu_count()));
      if (prng_.chance(400)) return heat(node, gpu);
      if (prng_.chance(400)) return show_fault(node, gpu);
      if (prng_.chance(200)) return break_driver(node);
      auditor_.on_device_fault(node.machine().gpu(gpu).facts.uuid);
      node.machine().set_condition(
          gpu, prng_.chance(500) ? v1::DEVICE_CONDITION_UNHEALTHY : v1::DEVICE_CONDITION_MISSING, "Xid 79");
      return schedule_.in(context_.some_ms(100, 40'000),
                          [&node, gpu] { node.machine().set_condition(gpu, v1::DEVICE_CONDITION_OK, ""); });
    }
    default:
      UNREACHABLE();
  }
}

// As after an upgrade beneath the agent: it answers for none of its devices until it is loaded again.
void World::break_driver(SimNode& node) {
  trace_.note("driver-breaks", {node.machine().gpu_count()}, node.name());
  const auto tell_all = [&node](v1::DeviceCondition condition, const std::string& detail) {
    for (uint32_t gpu = 0; gpu < node.machine().gpu_count(); ++gpu)
      node.machine().set_condition(gpu, condition, detail);
  };
  for (uint32_t gpu = 0; gpu < node.machine().gpu_count(); ++gpu)
    auditor_.on_device_fault(node.machine().gpu(gpu).facts.uuid);
  tell_all(v1::DEVICE_CONDITION_UNHEALTHY, "Driver/library version mismatch");
  schedule_.in(context_.some_ms(1'000, 60'000), [tell_all] { tell_all(v1::DEVICE_CONDITION_OK, ""); });
}

// Hot for a while, then as it was. A spike is over before anybody believes it.
void World::heat(SimNode& node, uint32_t gpu) {
  const auto celsius = static_cast<int32_t>(prng_.between(kHotCelsius + 1, 110));
  trace_.note("gpu-heats", {gpu, static_cast<uint64_t>(celsius)}, node.name());
  auditor_.on_device_hot(node.machine().gpu(gpu).facts.uuid);
  node.machine().set_temperature(gpu, celsius);
  schedule_.in(prng_.chance(300) ? context_.some_ms(10, 500) : context_.some_ms(1'000, 60'000),
               [&node, gpu] { node.machine().set_temperature(gpu, Machine::kIdleCelsius); });
}

// Draws a fault of any class: the job's own, noted, drain, reset, replace; and errors that are counted.
void World::show_fault(SimNode& node, uint32_t gpu) {
  static constexpr std::array<uint32_t, 8> kXids = {13, 31, 63, 79, 74, 48, 119, 92};
  static constexpr std::size_t kHarmless = 3;
  const std::size_t drawn = prng_.below(kXids.size() + 1);
  trace_.note("gpu-fault", {gpu, drawn < kXids.size() ? kXids[drawn] : 0}, node.name());
  if (drawn >= kHarmless) auditor_.on_device_fault(node.machine().gpu(gpu).facts.uuid);
  if (drawn < kXids.size()) return node.machine().note_xid(gpu, kXids[drawn]);
  node.machine().note_memory_error(gpu);
}

// The operator: looks now and then, acts on what is certain.

void World::operate_later() {
  schedule_.in(context_.some_ms(1'000, 20'000), [this] {
    operate();
    operate_later();
  });
}

void World::operate() {
  std::vector<Command> commands;
  host_->with_observer([&](const Observer::View& view) {
    const bool paused = view.state.config.pause.on();
    if (paused ? healed_ || prng_.chance(500) : !healed_ && prng_.chance(20))
      commands.emplace_back(PauseStarts{.paused = !paused, .by = "operator", .why = "a switch is replaced"});
    for (const Node& known : view.state.nodes) {
      if (known.removed) continue;
      const SimNode* node = copies_->machine_of(known.name);
      CHECK(node != nullptr);
      const Machine& machine = node->machine();
      if (known.state == NodeState::kUnreachable || known.state == NodeState::kLost) {
        // Off, or on again in another boot that was not let in: what ran there is over.
        const bool over = !copies_->is_running(known.boot_id);
        if (over) commands.emplace_back(ConfirmNodeDead{.node = known.id, .boot_id = known.boot_id});
      }
      // Also what still holds something, which is refused.
      const uint32_t removals = known.state == NodeState::kDead    ? 300
                                : known.state == NodeState::kReady ? 0
                                                                   : 50;
      if (!healed_ && prng_.chance(removals))
        commands.emplace_back(RemoveNode{.node = known.id, .boot_id = known.boot_id, .by = "operator"});
      const bool drained = known.availability == Availability::kDraining;
      if (drained ? healed_ || prng_.chance(400) : !healed_ && prng_.chance(40)) {
        commands.emplace_back(
            SetNodeAvailability{.node = known.id,
                                .to = drained ? Availability::kInService : Availability::kDraining,
                                .by = "operator",
                                .reason = drained ? "" : "to be looked after"});
      }
      for (uint32_t i = 0; i < known.devices.size(); ++i) {
        const Device& device = known.devices[i];
        const bool lift = device.state == DeviceState::kQuarantined && machine.is_clean(device.uuid);
        const bool bar = !healed_ && context_.on(Fault::kGpu) && prng_.chance(20);
        // Word that a device is well also ends its quarantine: not while something is left on it.
        const bool settled = device.state == DeviceState::kFree || device.state == DeviceState::kHeld;
        const bool stopped = device.barred || device.fault >= FaultClass::kDrain;
        const bool unbar = stopped && settled && (healed_ || prng_.chance(300));
        if (!lift && !bar && !unbar) continue;
        commands.emplace_back(
            SetDeviceCondition{.node = known.id,
                               .device = i,
                               .condition = bar ? DeviceCondition::kUnhealthy : DeviceCondition::kOk,
                               .detail = bar ? "makes noises" : "",
                               .by_operator = true,
                               .generation = device.generation,
                               .lasting = true,
                               .by = "operator"});
      }
    }
  });
  propose_all(std::move(commands));
}

void World::propose_all(std::vector<Command> commands) {
  for (Command& command : commands) {
    trace_.note("operator", {command.index()}, name_of(command));
    host_->propose(std::move(command), [](const Result<Decided>&) {});
  }
}

void World::rearrange_later() {
  schedule_.in(milliseconds(rearranging_prng_.between(200, 2'000)), [this] {
    if (healed_) return;
    std::vector<Command> commands;
    host_->with_observer([&](const Observer::View& view) { rearrange(view.state, commands); });
    propose_all(std::move(commands));
    rearrange_later();
  });
}

// An operator's changes to the shares of pools, and to free GPUs that are scattered.
void World::rearrange(const State& state, std::vector<Command>& commands) {
  Prng& prng = rearranging_prng_;
  if (state.config.pools.on() && prng.chance(20)) {
    const int64_t online = prng.between(0, 10) * 100;
    commands.emplace_back(SetPools{.online_milli = online, .batch_milli = 1'000 - online, .by = "operator"});
  }
  if (state.waiting_count() == 0 || state.attempts.empty()) return;
  policy::PolicySet policies = policy::default_policies();
  policies.victims = nullptr;
  policies.tasks = host_->settings().tuning.tasks;
  forecast::World world(state.clone_unfinished(), policies,
                        std::max(MachineClock::true_wall(schedule_), state.last.at));
  forecast::Work work{.left = kMoveWorkMax};
  if (!world.settle(work)) return;
  const HostTuning& tuning = host_->settings().tuning;
  const forecast::MoveOptions options{.proposals = 1,
                                      .protection = {},
                                      .recent = {},
                                      .budget = 100,
                                      .grace = tuning.grace,
                                      .grace_max = tuning.preempt_grace_max};
  forecast::MovePlan plan = forecast::plan_moves(world, options, work);
  if (plan.proposals.empty()) return;
  MoveJobs moves = std::move(plan.proposals.front().command);
  moves.by = "operator";
  moves.why = "GPUs are scattered";
  commands.emplace_back(std::move(moves));
}

// The run.

void World::step() {
  schedule_.step();
  const HostCore* core = host_->core();
  if (core == nullptr) return;
  auditor_.check_digest("the scheduler", core->state(), core->position());
  const bool full = schedule_.steps() % kFullCheckSteps == 0;
  const bool whole = schedule_.steps() % kSnapshotCheckSteps == 0;
  if (full) auditor_.check_all("the scheduler", core->state());
  if (schedule_.steps() % kDecodeCheckSteps == 0) auditor_.check_snapshot("the scheduler", core->state());
  host_->with_observer([&](const Observer::View& view) {
    auditor_.check_digest("the observer", view.state, view.position);
    if (full) auditor_.check_all("the observer", view.state);
    if (whole && snapshot_digest(view.state) != snapshot_digest(core->state())) {
      auditor_.fail("scheduler and observer would write different snapshots");
    }
  });
}

RunResult World::run() {
  host_->start();
  for (const auto& node : nodes_) {
    schedule_.in(context_.some_ms(0, 3'000), [&node] { node->power_on(); });
  }
  schedule_.in(milliseconds(10), [this] { clients_->begin(); });
  break_something_later();
  break_disk_later();
  break_folder_later();
  operate_later();
  if (changes_rules()) rearrange_later();
  const FaultSet used = context_.faults;
  while (schedule_.steps() < options_.steps && goes_on()) step();
  if (goes_on()) come_to_rest();
  if (goes_on()) check_rest();
  if (goes_on()) auditor_.check_replay();
  if (goes_on()) auditor_.check_otherwise(folder_prng_);
  if (goes_on()) host_->check_folder();
  trace_.mix(auditor_.replica().digest.value());
  uint64_t refused_starts = 0;
  for (const auto& node : nodes_) refused_starts += node->machine().refused();
  return {.failure = auditor_.failure(),
          .steps = schedule_.steps(),
          .digest = trace_.digest().value(),
          .jobs = auditor_.job_count(),
          .attempts = auditor_.attempt_count(),
          .host_starts = host_->starts(),
          .records = auditor_.position(),
          .refused_starts = refused_starts,
          .host = host_->story(),
          .struck = struck_,
          .faults = used};
}

void World::heal() {
  trace_.note("heal", {});
  healed_ = true;
  context_.faults = {};
  network_->heal();
  clients_->stop();
  host_->disk().heal();
  host_->spoil_snapshots(0);
  host_->right_clock();
  host_->pause({});
  if (!host_->up()) host_->start();
  copies_->heal();
  for (const auto& node : nodes_) {
    node->machine().heal();
    node->heal_disk();
    node->pause({});
    node->power_on();
    node->start_agent();
  }
  schedule_.in(seconds(20), [this] { clients_->lift_quotas(); });
  // Nodes' faults may hold jobs later, too.
  for (const Duration after : {seconds(25), seconds(600), seconds(1'800), seconds(3'600)}) {
    schedule_.in(after, [this] { clients_->let_all_go(); });
  }
  rest_after_ = schedule_.now() + seconds(30);
  // Jobs that no machine here can run are given up; those that were too much for a quota are not.
  schedule_.in(seconds(600), [this] {
    const bool switched =
        std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->switched(); });
    for (const JobId job : auditor_.unfinished()) {
      const Job* waiting = auditor_.replica().jobs.find(job);
      if (waiting == nullptr) continue;
      const bool reserved = auditor_.replica().class_of(*waiting).parts.front().booking != 0;
      if (waiting->attempt_count == 0 || switched || reserved) clients_->cancel(job);
    }
  });
  if (wild_ || changes_rules()) schedule_.in(seconds(20), [this] { clients_->cancel_reservations(); });
  if (!wild_ && !mixes_all()) return;
  // Jobs that were changed into something that cannot run, or not for years, are given up too.
  schedule_.in(seconds(2'000), [this] {
    for (const JobId job : auditor_.unfinished()) clients_->cancel(job);
  });
}

// A GPU that was replaced stays on its node's books for a while.
bool World::is_replaced(const std::string& name, const Device& device) const {
  const auto node =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& one) { return one->name() == name; });
  return device.condition == DeviceCondition::kMissing && !(*node)->machine().has(device.uuid);
}

bool World::converged() {
  if (schedule_.now() < rest_after_) return false;
  if (schedule_.now() <= network_->reports_until()) return false;  // One of them may be said a second time.
  if (!host_->up() || !clients_->settled() || !auditor_.unfinished().empty()) return false;
  if (!host_->core()->idle() || host_->core()->position() != auditor_.position()) return false;
  if (!host_->has_room()) return false;  // With nothing left to do a full volume empties by itself.
  for (const Node& node : host_->core()->state().nodes) {
    if (node.removed || copies_->is_leftover(node)) continue;
    if (!node.in_service()) return false;
    for (const Device& device : node.devices) {
      if (Copies::is_of_copy(device.uuid) && device.condition == DeviceCondition::kMissing) continue;
      // Nor one of which shares still drain: a MIG slice takes a moment to be destroyed.
      const bool gone = device.state == DeviceState::kFree || device.state == DeviceState::kQuarantined;
      if (!gone || (!device.fit() && !is_replaced(node.name, device))) return false;
    }
  }
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node->core() != nullptr && node->core()->registered() &&
           node->core()->unacknowledged_count() == 0 && node->core()->running_count() == 0 &&
           node->machine().is_empty() && node->machine().is_read();
  });
}

void World::come_to_rest() {
  heal();
  const Time limit = schedule_.now() + kRestMax;
  const uint64_t steps_max = schedule_.steps() + kRestStepsMax;
  while (goes_on() && !converged()) {
    if (schedule_.now() > limit || schedule_.steps() > steps_max)
      return auditor_.fail("no rest: " + why_not());
    step();
  }
}

// At rest nothing moves: no command is written, no report sent again.
void World::check_rest() {
  const HostCore* core = host_->core();
  auditor_.check_all("the scheduler at rest", core->state());
  host_->with_observer(
      [&](const Observer::View& view) { auditor_.check_all("the observer at rest", view.state); });
  if (core->state().config != config_taken(core->state().config, host_->settings().engine))
    auditor_.fail("the configuration was never journaled: what was wanted was dropped");
  const Time until = schedule_.now() + kQuiet;
  const uint64_t commands = auditor_.command_count();
  const uint64_t advances = auditor_.advance_count();
  uint64_t reports = 0;
  for (const auto& node : nodes_) reports += node->reports_sent();
  while (!auditor_.failed() && schedule_.next() <= until) step();
  for (const auto& node : nodes_) reports -= node->reports_sent();
  if (reports != 0) auditor_.fail("agents go on reporting though everything is at rest");
  if (auditor_.command_count() != commands) {
    auditor_.fail("the scheduler goes on writing though everything is at rest");
  }
  // Timers of what is over may fall due.
  if (auditor_.advance_count() - advances > kQuietAdvancesMax)
    auditor_.fail("time is written again and again");
  if (host_->core() != nullptr) {
    for (const auto& node : nodes_) {
      for (uint32_t i = 0; i < node->machine().gpu_count(); ++i) {
        if (auditor_.device_in_use(node->machine().gpu(i).facts.uuid))
          auditor_.fail("a device is in use at rest");
      }
    }
  }
}

std::string World::why_unfinished(JobId job) {
  std::string text = "job " + std::to_string(job.value);
  const State& state = auditor_.replica();
  const Job* known = state.jobs.find(job);
  if (known == nullptr) return text + " is gone";
  text += " is " + std::string(to_string(known->state)) + " (" + std::string(to_string(known->reason)) +
          ", attempt " + std::to_string(known->attempt_count) + ")";
  if (known->state == JobState::kPending) {
    host_->with_observer([&](const Observer::View& view) {
      const Job* seen = view.state.jobs.find(job);
      if (seen != nullptr) text += ", waits: " + describe(view.reason_of(*seen));
    });
    if (known->not_before.valid()) {
      text += ", backs off for " + std::to_string((known->not_before - state.last.at).ms()) +
              " ms after the last command";
    }
  } else if (known->node.valid()) {
    const Node* node = state.find_node(known->node);
    if (node != nullptr) text += " on node " + node->name + ", " + std::string(to_string(node->state));
  }
  return text;
}

std::string World::why_not() {
  std::string text;
  const auto add = [&](const std::string& sentence) { text += (text.empty() ? "" : "; ") + sentence; };
  if (!host_->up()) return "the scheduler is down";
  if (!clients_->settled()) add("clients still wait for answers");
  const std::vector<JobId> jobs = auditor_.unfinished();
  for (std::size_t i = 0; i < jobs.size() && i < 3; ++i) add(why_unfinished(jobs[i]));
  if (jobs.size() > 3) add(std::to_string(jobs.size()) + " jobs in all are not final");
  if (!host_->core()->idle()) add("the scheduler has work in its queue");
  if (!host_->has_room()) add("the scheduler's volume stays full, and new work is refused");
  for (const Node& node : host_->core()->state().nodes) {
    if (node.removed) continue;
    if (node.state != NodeState::kReady)
      add("node " + node.name + " is " + std::string(to_string(node.state)));
    if (node.availability != Availability::kInService)
      add("node " + node.name + " is out of service: " + node.availability_reason);
    for (const Device& device : node.devices) {
      if (!device.fit() && !is_replaced(node.name, device))
        add("device " + device.uuid + " is " + std::string(to_string(device.condition)) +
            (device.barred ? " and barred" : ""));
      if (device.state == DeviceState::kFree || device.state == DeviceState::kQuarantined) continue;
      add("device " + device.uuid + " is " + std::string(to_string(device.state)) + " in generation " +
          std::to_string(device.generation) + ", last for job " + std::to_string(device.held_by.job.value));
    }
  }
  for (const auto& node : nodes_) {
    if (node->core() == nullptr) {
      add("no agent runs on " + node->name());
      continue;
    }
    if (!node->core()->registered()) add(node->name() + " is not registered");
    if (node->core()->unacknowledged_count() > 0) {
      add(node->name() + " has " + std::to_string(node->core()->unacknowledged_count()) +
          " unacknowledged reports");
    }
    if (node->core()->running_count() > 0) add(node->name() + " believes that it runs something");
    if (!node->machine().is_empty()) add(node->name() + " runs something");
    if (!node->machine().is_read()) add(node->name() + "'s driver has not answered");
  }
  return text;
}

RunResult run_seed(const RunOptions& options) { return World(options).run(); }

}  // namespace gpusched::sim
