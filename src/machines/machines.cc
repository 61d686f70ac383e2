#include "machines/machines.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "log/log.h"

namespace gpusched::machines {
namespace {

constexpr std::size_t kThreads = 8;
constexpr std::size_t kFreeNodesMax = 1'024;
constexpr int64_t kBreakerLimit = 5;
constexpr int64_t kBurst = 20;

Time monotonic_now() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}
Time wall_now() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::system_clock::now().time_since_epoch())
              .count()};
}

provision::MachineNode const* node_of(const std::optional<provision::MachineNode>& node) {
  return node ? &*node : nullptr;
}

SetNodeAvailability availability_of(NodeId node, const std::string& pool, bool drains) {
  return {.node = node,
          .to = drains ? Availability::kDraining : Availability::kInService,
          .by = std::string(provision::kDrainedBy),
          .reason = "the machine of pool " + pool + " is to be returned"};
}

Duration median_boot(const PoolRecord& record, Duration configured) {
  if (record.boots_ms.empty()) return configured;
  std::vector<int64_t> sorted = record.boots_ms;
  std::ranges::sort(sorted);
  return milliseconds(sorted[sorted.size() / 2]);
}

std::string region_of(const provision::Pool& pool) {
  const auto label = std::ranges::find(pool.shape.labels, provision::kRegionLabel, &Label::name);
  return label == pool.shape.labels.end() ? std::string() : label->value;
}

}  // namespace

Result<std::unique_ptr<Machines>> Machines::open(MachinesOptions options) {
  Result<Records> records = load_records(options.record_file);
  if (!records.ok()) return records.error();
  return std::unique_ptr<Machines>(new Machines(std::move(options), std::move(*records)));
}

Machines::Machines(MachinesOptions options, Records records)
    : options_(std::move(options)), records_(std::move(records)), random_(options_.seed) {
  for (const PoolSetup& setup : options_.pools) {
    pools_.emplace(setup.pool.name,
                   PoolState{.setup = setup,
                             .rate = provision::RateLimit(setup.calls_per_minute, kBurst),
                             .breaker = provision::Breaker(kBreakerLimit, options_.pool_pause,
                                                           options_.pool_pause_most)});
    records_.pools.try_emplace(setup.pool.name);
  }
  const Time now = monotonic_now();
  const int64_t wall_ms = wall_now().ms();
  for (const auto& [name, machine] : records_.machines) {
    Live live;
    live.asked_at = now - milliseconds(std::max<int64_t>(0, wall_ms - machine.asked_ms));
    if (!pools_.contains(machine.pool)) {
      live.trouble =
          "its pool is not configured any more: end it at its provider, or configure the pool again";
      log_event(LogLevel::kError, "machines", "machine_without_pool", {},
                {{"machine", name}, {"pool", machine.pool}});
    }
    live_.emplace(name, std::move(live));
  }
  publish({});
}

void Machines::start(SchedulerAccess access) {
  access_ = std::move(access);
  calls_ = std::make_unique<Calls>(kThreads);
  thread_ = std::thread([this] { run(); });
}

void Machines::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& [name, pool] : pools_) pool.setup.provider->stop();
  if (thread_.joinable()) thread_.join();
  if (calls_ != nullptr) calls_->stop();
}

MachinesView Machines::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

std::optional<JobOutlook> Machines::outlook_of(uint32_t job_class) const {
  const std::lock_guard lock(mutex_);
  const auto found = outlooks_.find(job_class);
  if (found == outlooks_.end()) return std::nullopt;
  const Time now = monotonic_now();
  const Time ready = std::max(now, found->second.ready_at);
  return JobOutlook{.outlook = found->second.outlook, .pool = found->second.pool, .ready_in = ready - now};
}

bool Machines::is_returning(const std::string& node) const {
  const std::lock_guard lock(mutex_);
  return returning_.contains(node);
}

template <typename T>
std::optional<T> Machines::wait_for(std::function<void(std::function<void(T)>)> begin) {
  const auto value = std::make_shared<std::optional<T>>();  // The callback may come after our end.
  begin([this, value](T found) {
    const std::lock_guard lock(mutex_);
    *value = std::move(found);
    wake_.notify_all();
  });
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stopping_ || value->has_value(); });
  return stopping_ ? std::nullopt : std::move(*value);
}

void Machines::run() {
  while (true) {
    turn();
    std::unique_lock lock(mutex_);
    const auto pause = std::chrono::nanoseconds(options_.every.ns);
    wake_.wait_for(lock, pause, [this] { return stopping_ || !results_.empty(); });
    if (stopping_) return;
  }
}

void Machines::turn() {
  take_results();
  std::optional<Facts> facts = wait_for<Facts>([this](std::function<void(Facts)> done) {
    std::vector<std::string> names, prefixes;
    for (const auto& [name, live] : live_) names.push_back(name);
    for (const auto& [name, pool] : pools_) prefixes.push_back(name + "-");
    access_.read(0, [names, prefixes, done](const State& state, const std::vector<WaitReason>& reasons) {
      Facts seen;
      std::vector<std::string> quiet;
      for (const std::string& name : names) {
        std::optional<provision::MachineNode> node = provision::machine_node(state, name);
        if (!node) continue;
        if (node->quiet) quiet.push_back(name);
        seen.nodes.emplace(name, std::move(*node));
      }
      seen.demand = provision::demand_of(state, reasons);
      const bool gangs = std::ranges::any_of(
          seen.demand, [](const provision::Demand& demand) { return is_gang(demand.parts); });
      if (gangs) seen.free = provision::free_capacities(state, quiet, kFreeNodesMax);
      for (const Node& node : state.nodes) {
        if (node.removed) continue;
        for (const std::string& prefix : prefixes) {
          if (node.name.starts_with(prefix)) seen.node_names.insert(node.name);
        }
      }
      done(std::move(seen));
    });
  });
  if (!facts) return;
  follow(*facts);
  drop_gone();
  const std::set<std::string> node_names = facts->node_names;
  const provision::Decisions decisions = provision::decide(situation_of(std::move(*facts)));
  act(decisions, node_names);
  save();
  begin_calls();
  publish(decisions);
}

void Machines::follow(const Facts& facts) {
  const Time now = monotonic_now();
  for (auto& [name, live] : live_) {
    const auto found = facts.nodes.find(name);
    live.node.reset();
    if (found == facts.nodes.end()) {
      live.quiet_since = {};
      continue;
    }
    live.node = found->second;
    if (!live.node->quiet) live.quiet_since = {};
    if (live.node->quiet && !live.quiet_since.valid()) live.quiet_since = now;
    if (!live.node->silent) live.absent_once = false;
    MachineRecord& record = records_.machines.at(name);
    if (record.ready_ms != 0 || !live.node->in_service) continue;
    record.ready_ms = wall_now().ms();
    unsaved_ = true;
    live.trouble.clear();
    const auto pool = pools_.find(record.pool);
    if (pool == pools_.end()) continue;
    pool->second.refusals = 0;
    std::vector<int64_t>& boots = records_.pools[record.pool].boots_ms;
    boots.push_back((now - live.asked_at).ms());
    if (boots.size() > kBootsKept) boots.erase(boots.begin());
    log_event(LogLevel::kInfo, "machines", "machine_ready", {},
              {{"machine", name}, {"pool", record.pool}, {"after_ms", boots.back()}});
  }
}

provision::Situation Machines::situation_of(Facts facts) const {
  provision::Situation situation{.now = monotonic_now()};
  for (const auto& [name, pool] : pools_) {
    const bool paused = pool.closed_until.valid() && situation.now < pool.closed_until;
    situation.pools.push_back({.pool = pool.setup.pool,
                               .boot = median_boot(records_.pools.at(name), pool.setup.pool.boot),
                               .open = pool.breaker.is_closed() && !paused && !save_failed_});
  }
  for (const auto& [name, live] : live_) {
    const MachineRecord& record = records_.machines.at(name);
    situation.machines.push_back({.name = name,
                                  .pool = record.pool,
                                  .ending = record.ending,
                                  .asked_at = live.asked_at,
                                  .node = live.node,
                                  .quiet_since = live.quiet_since});
  }
  situation.demand = std::move(facts.demand);
  situation.free = std::move(facts.free);
  return situation;
}

void Machines::act(const provision::Decisions& decisions, const std::set<std::string>& node_names) {
  for (const std::string& pool : decisions.create) ask_for(pool, node_names);
  for (const std::string& machine : decisions.resume) drain(machine, false);
  for (const std::string& machine : decisions.drain) drain(machine, true);
  for (const provision::Ending& ending : decisions.end) {
    if (ending.of_node && !is_free(ending.machine)) continue;
    if (!ending.of_node)
      refuse(pools_.at(records_.machines.at(ending.machine).pool), ending.machine + ": " + ending.why);
    end(ending.machine, ending.why);
  }
  // A node that comes while its machine ends must get no work.
  for (const auto& [name, live] : live_) {
    if (records_.machines.at(name).ending && live.node && live.node->in_service) drain(name, true);
  }
}

void Machines::ask_for(const std::string& pool, const std::set<std::string>& node_names) {
  PoolRecord& record = records_.pools.at(pool);
  std::string name;
  do {  // Never a name that somebody has: after a restore the number may be an old one.
    name = pool + "-" + std::to_string(record.next++);
  } while (node_names.contains(name) || pools_.at(pool).orphans.contains(name) || live_.contains(name));
  ++record.made;
  const int64_t price = pools_.at(pool).setup.pool.price_milli;
  records_.machines.emplace(
      name, MachineRecord{.name = name, .pool = pool, .asked_ms = wall_now().ms(), .price_milli = price});
  live_.emplace(name, Live{.asked_at = monotonic_now()});
  unsaved_ = true;
  log_event(LogLevel::kInfo, "machines", "machine_requested", {}, {{"machine", name}, {"pool", pool}});
}

void Machines::end(const std::string& machine, const std::string& why) {
  MachineRecord& record = records_.machines.at(machine);
  record.ending = true;
  record.why = why;
  live_.at(machine).due = {};
  unsaved_ = true;
  {
    const std::lock_guard lock(mutex_);
    returning_.insert(machine);
  }
  log_event(LogLevel::kInfo, "machines", "machine_ending", {},
            {{"machine", machine}, {"pool", record.pool}, {"why", why}});
}

void Machines::drain(const std::string& machine, bool on) {
  const Live& live = live_.at(machine);
  if (!live.node) return;
  const std::string& pool = records_.machines.at(machine).pool;
  log_event(LogLevel::kInfo, "machines", on ? "machine_draining" : "machine_resumed", {},
            {{"machine", machine}, {"pool", pool}});
  access_.propose(availability_of(live.node->id, pool, on), [](bool, uint64_t) {});
}

bool Machines::is_free(const std::string& machine) {
  {
    // From now on nobody resumes it; who did before comes before our drain, which then drains it again.
    const std::lock_guard lock(mutex_);
    returning_.insert(machine);
  }
  using Drained = std::pair<bool, uint64_t>;
  const NodeId node = live_.at(machine).node->id;
  const std::string& pool = records_.machines.at(machine).pool;
  const std::optional<Drained> drained = wait_for<Drained>([&](std::function<void(Drained)> done) {
    access_.propose(availability_of(node, pool, true),
                    [done](bool accepted, uint64_t sequence) { done({accepted, sequence}); });
  });
  std::optional<bool> free;
  if (drained && drained->first) {
    free = wait_for<bool>([&](std::function<void(bool)> done) {
      access_.read(
          drained->second, [machine, node, done](const State& state, const std::vector<WaitReason>&) {
            const std::optional<provision::MachineNode> now = provision::machine_node(state, machine);
            done(now && now->id == node && now->drained && now->quiet);
          });
    });
  }
  if (free.value_or(false)) return true;
  const std::lock_guard lock(mutex_);
  returning_.erase(machine);
  return false;
}

void Machines::drop_gone() {
  const Time now = monotonic_now();
  std::vector<std::string> gone;
  for (auto& [name, live] : live_) {
    if (!live.gone_at.valid()) continue;
    const provision::MachineNode* node = node_of(live.node);
    if (node == nullptr) {
      gone.push_back(name);
    } else if (!node->silent && now - live.gone_at > options_.echo_most) {
      // The node is the better witness: it must be ended again.
      live.gone_at = {};
      live.trouble = "its provider says that it is gone, but its node reports";
      log_event(LogLevel::kError, "machines", "machine_not_gone", {},
                {{"machine", name}, {"why", live.trouble}});
    } else if (node->silent && node->quiet) {
      access_.propose(
          RemoveNode{.node = node->id, .boot_id = node->boot_id, .by = std::string(provision::kDrainedBy)},
          [](bool, uint64_t) {});
    } else if (node->silent) {
      live.trouble = "it is gone, and its node had work: confirm it with gpu-cli node confirm-dead " + name;
    }
  }
  for (const std::string& name : gone) drop(name);
}

void Machines::drop(const std::string& machine) {
  const MachineRecord record = records_.machines.at(machine);
  PoolRecord& pool = records_.pools[record.pool];
  pool.spent_micro += cost_micro(record.price_milli, std::max<int64_t>(0, wall_now().ms() - record.asked_ms));
  ++pool.gone;
  records_.machines.erase(machine);
  live_.erase(machine);
  unsaved_ = true;
  {
    const std::lock_guard lock(mutex_);
    returning_.erase(machine);
  }
  log_event(LogLevel::kInfo, "machines", "machine_gone", {}, {{"machine", machine}, {"pool", record.pool}});
}

void Machines::save() {
  if (!unsaved_) return;
  const Result<Unit> saved = save_records(options_.record_file, records_);
  if (saved.ok()) {
    unsaved_ = false;
    save_failed_ = false;
    return;
  }
  if (!std::exchange(save_failed_, true)) {
    log_event(LogLevel::kError, "machines", "machine_record_not_written", {},
              {{"error", saved.error().message},
               {"effect", "no machine is asked for or returned until it can be written"}});
  }
}

void Machines::begin_calls() {
  if (unsaved_) return;  // No effect before its record.
  const Time now = monotonic_now();
  for (auto& [name, live] : live_) {
    const MachineRecord& record = records_.machines.at(name);
    const auto pool = pools_.find(record.pool);
    if (pool == pools_.end() || live.calling || live.gone_at.valid() || now < live.due) continue;
    const provision::MachineNode* node = node_of(live.node);
    if (record.ending && node != nullptr && !node->quiet) {
      // It came, and got work, after the end was decided because it did not come.
      live.trouble = "it is to be returned as soon as nothing runs on its node";
      continue;
    }
    const bool wanted = record.ending || node == nullptr || node->silent;
    if (!wanted || !pool->second.breaker.may_call(now) || !pool->second.rate.take(now)) continue;
    pool->second.breaker.begin(now);
    live.calling = true;
    const bool is_new = node == nullptr && !live.seen;
    begin(record.ending ? Call::kFinish : is_new ? Call::kEnsure : Call::kLook, record.pool, name);
  }
  for (auto& [name, pool] : pools_) {
    if (pool.listing || now < pool.list_due || !pool.breaker.may_call(now) || !pool.rate.take(now)) continue;
    pool.breaker.begin(now);
    pool.listing = true;
    begin(Call::kList, name, {});
  }
}

void Machines::begin(Call call, const std::string& pool, const std::string& machine) {
  const bool never_came = call == Call::kFinish && records_.machines.at(machine).ready_ms == 0;
  calls_->run([this, call, pool, machine, never_came, setup = pools_.at(pool).setup] {
    Provider& provider = *setup.provider;
    Done done{.call = call, .pool = pool, .machine = machine};
    switch (call) {
      case Call::kEnsure:
        // Who was killed after a call does not know of it, and a provider that is asked twice may err.
        done.answer = provider.describe(setup.pool, machine);
        if (!done.answer.fault && done.answer.state == ProviderState::kAbsent)
          done.answer = provider.create(setup.pool, machine);
        break;
      case Call::kLook:
        done.answer = provider.describe(setup.pool, machine);
        break;
      case Call::kFinish:
        done.answer =
            never_came ? provider.abandon(setup.pool, machine) : provider.destroy(setup.pool, machine);
        // Only what is seen to be gone is: an end that was begun may fail.
        if (!done.answer.fault) done.answer = provider.describe(setup.pool, machine);
        break;
      case Call::kList:
        done.answer = provider.list(setup.pool);
        break;
    }
    const std::lock_guard lock(mutex_);
    results_.push_back(std::move(done));
    wake_.notify_all();
  });
}

void Machines::take_results() {
  std::vector<Done> results;
  {
    const std::lock_guard lock(mutex_);
    results.swap(results_);
  }
  for (const Done& done : results) take(done);
}

void Machines::take(const Done& done) {
  PoolState& pool = pools_.at(done.pool);
  const Time now = monotonic_now();
  if (done.answer.fault == Fault::kUnavailable) {
    const bool was_closed = pool.breaker.is_closed();
    pool.breaker.failed(now);
    ++pool.failures;
    pool.trouble = done.answer.message;
    if (was_closed && !pool.breaker.is_closed()) {
      log_event(LogLevel::kError, "machines", "provider_unavailable", {},
                {{"pool", done.pool}, {"why", done.answer.message}});
    }
  } else {
    if (!pool.breaker.is_closed())
      log_event(LogLevel::kInfo, "machines", "provider_available", {}, {{"pool", done.pool}});
    pool.breaker.succeeded();
    if (pool.refusals == 0) pool.trouble.clear();
  }
  if (done.call == Call::kList) return take_list(done, pool);
  const auto found = live_.find(done.machine);
  if (found == live_.end()) return;
  Live& live = found->second;
  live.calling = false;
  if (done.answer.fault) return take_fault(done, pool, live);
  live.failures = 0;
  live.due = now + pool.setup.poll;
  const bool ending = records_.machines.at(done.machine).ending;
  if (done.call == Call::kFinish) {
    live.trouble.clear();
    if (done.answer.state == ProviderState::kAbsent) live.gone_at = now;
    return;
  }
  if (ending) return;  // Decided meanwhile: the next call ends it.
  switch (done.answer.state) {
    case ProviderState::kStarting:
    case ProviderState::kRunning:
      live.seen = true;
      live.absent_once = false;
      live.trouble.clear();
      return;
    case ProviderState::kFailed:
      refuse(pool, done.machine + " failed: " + done.answer.message);
      // The provider says that it never runs; a node that still reports says otherwise.
      if (!live.node || (live.node->silent && live.node->quiet)) return end(done.machine, "it failed");
      live.trouble = "its provider says that it failed: " + done.answer.message;
      return;
    case ProviderState::kAbsent:
    case ProviderState::kEnding:
      live.trouble = "its provider does not know it, though nobody here ended it";
      if (done.call == Call::kEnsure) return;  // It is asked for again.
      // Its node is the better witness.
      if (live.absent_once && (!live.node || (live.node->silent && live.node->quiet)))
        return end(done.machine, "it vanished");
      live.absent_once = true;
      return;
  }
}

void Machines::take_fault(const Done& done, PoolState& pool, Live& live) {
  live.trouble = done.answer.message;
  ++live.failures;
  live.due = monotonic_now() +
             provision::backoff(live.failures, options_.pause, options_.pause_most, random_.next());
  if (done.answer.fault == Fault::kUnavailable || done.call != Call::kEnsure) return;
  // It may exist in part all the same: it is ended, and only then forgotten.
  refuse(pool, done.answer.message);
  if (!records_.machines.at(done.machine).ending && !live.node)
    end(done.machine,
        std::string("the provider refused it (") + std::string(to_string(*done.answer.fault)) + ")");
}

void Machines::take_list(const Done& done, PoolState& pool) {
  pool.listing = false;
  pool.list_due = monotonic_now() + pool.setup.sweep;
  if (done.answer.fault) return;
  std::set<std::string> orphans;
  for (const std::string& name : done.answer.machines) {
    if (live_.contains(name)) continue;
    orphans.insert(name);
    if (pool.orphans.contains(name)) continue;
    log_event(LogLevel::kWarning, "machines", "machine_orphan", {},
              {{"machine", name},
               {"pool", done.pool},
               {"why",
                "its provider lists it as this scheduler's, and the record does not have it: end it at the "
                "provider if nobody needs it"}});
  }
  pool.orphans = std::move(orphans);
}

void Machines::refuse(PoolState& pool, const std::string& why) {
  ++pool.refusals;
  pool.trouble = why;
  const Duration pause =
      provision::backoff(pool.refusals, options_.pool_pause, options_.pool_pause_most, random_.next());
  pool.closed_until = monotonic_now() + pause;
  log_event(LogLevel::kWarning, "machines", "machine_refused", {},
            {{"pool", pool.setup.pool.name}, {"why", why}, {"again_in_seconds", pause.ms() / 1'000}});
}

Time Machines::wall_of(Time monotonic) const { return wall_now() + (monotonic - monotonic_now()); }

void Machines::publish(const provision::Decisions& decisions) {
  MachinesView view;
  std::map<std::string, int64_t> counts, costs;
  const int64_t wall_ms = wall_now().ms();
  for (const auto& [name, live] : live_) {
    const MachineRecord& record = records_.machines.at(name);
    const provision::MachineNode* node = node_of(live.node);
    const Duration boot = pools_.contains(record.pool) ? median_boot(records_.pools.at(record.pool),
                                                                     pools_.at(record.pool).setup.pool.boot)
                                                       : Duration{};
    MachineView machine{
        .name = name,
        .pool = record.pool,
        .state = record.ending       ? "deprovisioning"
                 : node == nullptr   ? "provisioning"
                 : node->silent      ? "unreachable"
                 : node->drained     ? "draining"
                 : !node->in_service ? "validating"
                 : node->quiet       ? "ready"
                                     : "busy",
        .asked_at = Time{record.asked_ms * 1'000'000},
        .ready_at = record.ready_ms != 0 ? Time{record.ready_ms * 1'000'000} : wall_of(live.asked_at + boot),
        .has_node = node != nullptr,
        .trouble = live.trouble,
        .price_milli = record.price_milli,
        .cost_micro = cost_micro(record.price_milli, std::max<int64_t>(0, wall_ms - record.asked_ms))};
    ++counts[record.pool];
    costs[record.pool] += machine.cost_micro;
    view.machines.push_back(std::move(machine));
  }
  const Time now = monotonic_now();
  for (const auto& [name, pool] : pools_) {
    const PoolRecord& record = records_.pools.at(name);
    const provision::Pool& of = pool.setup.pool;
    view.pools.push_back({.name = name,
                          .driver = pool.setup.driver,
                          .region = region_of(of),
                          .minimum = of.minimum,
                          .maximum = of.maximum,
                          .machines = counts[name],
                          .price_milli = of.price_milli,
                          .budget_milli = of.budget_milli,
                          .cost_micro = record.spent_micro + costs[name],
                          .made = record.made,
                          .gone = record.gone,
                          .failures = pool.failures,
                          .boot = median_boot(record, of.boot),
                          .open = pool.breaker.is_closed() && now >= pool.closed_until && !save_failed_,
                          .trouble = pool.trouble,
                          .orphans = {pool.orphans.begin(), pool.orphans.end()}});
  }
  std::map<uint32_t, provision::ClassOutlook> outlooks;
  for (const provision::ClassOutlook& outlook : decisions.outlooks) outlooks[outlook.job_class] = outlook;
  const std::lock_guard lock(mutex_);
  view_ = std::move(view);
  outlooks_ = std::move(outlooks);
}

}  // namespace gpusched::machines
