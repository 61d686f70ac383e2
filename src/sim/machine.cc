#include "sim/machine.h"

#include <algorithm>
#include <utility>

#include "model/mig.h"
#include "node/gpu/gpu_daemons.h"

namespace gpusched::sim {
namespace {

constexpr Duration kContactPoll = milliseconds(500);
constexpr Duration kStoppedPoll = seconds(1);
constexpr int64_t kJobMemoryMb = 3'000;
constexpr int64_t kIdleMemoryMb = 5;
/// More than is ever believed to be an idle device's own.
constexpr int64_t kDaemonMemoryMb = 1'500;
constexpr int64_t kMpsPid = 20;
constexpr int64_t kMonitorPid = 21;

/// Daemons outlive agents, and look the same on every machine.
std::optional<ProgramFacts> program_of(int64_t pid) {
  if (pid == kMpsPid) return ProgramFacts{.name = "nvidia-cuda-mps-server", .trusted = true};
  if (pid == kMonitorPid) return ProgramFacts{.name = "nv-hostengine", .trusted = true};
  return ProgramFacts{.name = "train", .trusted = false};
}

Outcome to_model(const v1::Outcome& wire) {
  return {
      .cause = static_cast<EndCause>(wire.cause()), .exit_code = wire.exit_code(), .signal = wire.signal()};
}

}  // namespace

std::vector<std::string> to_arguments(const Behaviour& behaviour) {
  return {"work",
          behaviour.tag,
          std::to_string(behaviour.runtime_ms),
          std::to_string(behaviour.exit_code),
          std::to_string(behaviour.signal),
          std::to_string(behaviour.failing_attempts),
          behaviour.ignores_term ? "1" : "0",
          std::to_string(behaviour.busy_after_ms)};
}

Behaviour from_arguments(const std::vector<std::string>& arguments) {
  CHECK(arguments.size() == 8);
  return {.tag = arguments[1],
          .runtime_ms = std::stoll(arguments[2]),
          .exit_code = std::stoi(arguments[3]),
          .signal = std::stoi(arguments[4]),
          .failing_attempts = std::stoi(arguments[5]),
          .ignores_term = arguments[6] == "1",
          .busy_after_ms = std::stoll(arguments[7])};
}

Machine::Machine(Context& context, std::vector<DeviceFacts> devices, std::function<void(Input)> to_agent)
    : context_(context), to_agent_(std::move(to_agent)), has_daemons_(context.on(Fault::kGpuDaemons)) {
  for (DeviceFacts& facts : devices) {
    order_.push_back(static_cast<uint32_t>(gpus_.size()));
    gpus_.push_back({.facts = std::move(facts)});
  }
}

void Machine::later(Duration delay, std::function<void()> action) {
  context_.schedule.in(delay, [this, boot = boot_, action = std::move(action)] {
    if (boot == boot_) action();
  });
}

void Machine::tell(const AttemptKey& key, Input input) {
  Time& last = told_at_[key];
  last = std::max(last, context_.schedule.now() + context_.some_delay());
  later(last - context_.schedule.now(), [this, agent = agent_, input = std::move(input)] {
    if (agent == agent_) to_agent_(input);
  });
}

Machine::Process* Machine::running(const AttemptKey& key) {
  const auto found = processes_.find(key);
  return found == processes_.end() || !found->second.alive ? nullptr : &found->second;
}

void Machine::force_end(const AttemptKey& key) {
  later(context_.some_delay(), [this, key] {
    Process* process = running(key);
    if (process == nullptr) return;
    context_.trace.note("process-forced", {key.job.value, key.attempt});
    process->alive = false;
    context_.auditor.on_process_forced(key);
    leave_busy(*process);
    tell(key, [key](NodeCore& core) { core.on_shim_lost(key, "its shim did not do as it was told"); });
  });
}

// Orders.

void Machine::start(SpawnRequest request) {
  const AttemptKey key = request.key;
  for (HeldDevice& device : request.devices)
    device.index = gpu_of(device.index);  // Numbers are an agent's own.
  unlaunched_[key] = std::move(request);
  later(context_.some_delay(), [this, key] {
    const auto waiting = unlaunched_.extract(key);
    if (!waiting.empty()) launch(waiting.mapped());
  });
}

void Machine::launch(const SpawnRequest& request) {
  const AttemptKey key = request.key;
  Process& process = processes_[key];
  process.request = request;
  process.behaviour = from_arguments(request.arguments);
  if (black_hole_) {
    process.behaviour.runtime_ms = context_.prng.between(1, 200);
    process.behaviour.exit_code = 1;
    process.behaviour.signal = 0;
    process.behaviour.failing_attempts = 1'000'000;
  }
  MachineClock clock(context_.schedule);
  process.started_unix_ns = clock.wall().ns;
  if (refusals_ > 0 && context_.prng.chance(refusals_)) {
    ++refused_;
    context_.trace.note("start-refused", {key.job.value, key.attempt, key.member});
    context_.auditor.on_start_refused(key);
    v1::Outcome outcome;
    outcome.set_cause(v1::Outcome::NOT_STARTED);
    outcome.set_detail("the pod does not tolerate a taint");
    return finish(key, std::move(outcome));
  }
  if (context_.on(Fault::kStartFails) && context_.prng.chance(100)) {
    context_.trace.note("start-fails", {key.job.value, key.attempt});
    context_.auditor.on_start_failed(key);
    v1::Outcome outcome;
    outcome.set_cause(v1::Outcome::START_FAILED);
    outcome.set_detail("no such file");
    return finish(key, std::move(outcome));
  }
  process.contact_at = contact_at_;
  if (request.lost_contact.ns > 0 && context_.schedule.now() - contact_at_ >= request.lost_contact) {
    v1::Outcome outcome;
    outcome.set_cause(v1::Outcome::CONTACT_LOST);
    return finish(key, std::move(outcome));
  }
  process.pid = next_pid_++;
  process.alive = true;
  process.waits = request.gated;
  if (request.lost_contact.ns > 0) watch_contact(key);
  if (request.gated) {
    context_.trace.note("process-waits", {key.job.value, key.attempt, key.member});
    tell(key, [key](NodeCore& core) { core.on_shim_prepared(key); });
  } else {
    begin(key);
  }
  const auto stop = stop_at_launch_.find(key);
  if (stop == stop_at_launch_.end()) return;
  begin_stop(key, v1::Outcome::STOPPED, stop->second);
  stop_at_launch_.erase(stop);
}

void Machine::go(const AttemptKey& key) {
  later(context_.some_delay(), [this, key] {
    Process* process = running(key);
    if (process == nullptr || !process->waits) return;
    process->waits = false;
    MachineClock clock(context_.schedule);
    process->started_unix_ns = clock.wall().ns;
    begin(key);
  });
}

void Machine::begin(const AttemptKey& key) {
  Process& process = processes_.at(key);
  const SpawnRequest& request = process.request;
  std::vector<std::string> uuids;
  for (const HeldDevice& device : request.devices) uuids.push_back(gpus_.at(device.index).facts.uuid);
  context_.trace.note("process-starts", {key.job.value, key.attempt, uuids.size()},
                      uuids.empty() ? "" : uuids.front());
  context_.auditor.on_process_started(key, uuids);
  tell(key, [key, pid = process.pid, at = process.started_unix_ns](NodeCore& core) {
    core.on_shim_started(key, pid, at);
  });
  later(milliseconds(process.behaviour.runtime_ms), [this, key] { end_by_itself(key); });
  if (request.max_runtime.ns > 0) watch_runtime(key, context_.schedule.now(), request.max_runtime);
}

void Machine::end_by_itself(const AttemptKey& key) {
  Process* ending = running(key);
  if (ending == nullptr) return;
  if (ending->stopped) return later(kStoppedPoll, [this, key] { end_by_itself(key); });
  const bool fails = static_cast<int32_t>(key.attempt) <= ending->behaviour.failing_attempts;
  v1::Outcome outcome;
  outcome.set_cause(ending->stopping);
  if (fails) outcome.set_exit_code(ending->behaviour.exit_code);
  if (fails) outcome.set_signal(ending->behaviour.signal);
  if (ending->stopping == v1::Outcome::CAUSE_UNSPECIFIED) {
    outcome.set_cause(outcome.signal() != 0 ? v1::Outcome::SIGNALED : v1::Outcome::EXITED);
  }
  finish(key, std::move(outcome));
}

// As a shim does: it looks for another limit when the one it knows is over.
void Machine::watch_runtime(const AttemptKey& key, Time started, Duration limit) {
  later(started + limit - context_.schedule.now(), [this, key, started, limit] {
    const Process* process = running(key);
    if (process == nullptr) return;
    const Duration newest = process->request.max_runtime;
    if (newest.ns == 0) return;
    if (newest > limit) return watch_runtime(key, started, newest);
    begin_stop(key, v1::Outcome::TIMEOUT, process->request.grace);
  });
}

void Machine::set_max_runtime(const AttemptKey& key, Duration limit) {
  if (Process* process = running(key)) process->request.max_runtime = limit;
}

void Machine::watch_contact(const AttemptKey& key) {
  later(kContactPoll, [this, key] {
    Process* process = running(key);
    if (process == nullptr) return;
    process->contact_at = std::max(process->contact_at, contact_at_);
    if (context_.schedule.now() - process->contact_at >= process->request.lost_contact) {
      return begin_stop(key, v1::Outcome::CONTACT_LOST, process->request.grace);
    }
    watch_contact(key);
  });
}

void Machine::stop(const AttemptKey& key, const StopOrder& order) {
  const Duration grace = order.grace;
  if (unlaunched_.contains(key)) {
    stop_at_launch_[key] = grace;
    return;
  }
  later(context_.some_delay(), [this, key, grace] { begin_stop(key, v1::Outcome::STOPPED, grace); });
}

// SIGTERM; then SIGKILL, after the shortest grace that was asked for.
void Machine::begin_stop(const AttemptKey& key, v1::Outcome::Cause cause, Duration grace) {
  Process* process = running(key);
  if (process == nullptr) return;
  if (process->stopped) {
    process->deaf = process->deaf || cause == v1::Outcome::STOPPED;
    return later(kStoppedPoll, [this, key, cause, grace] { begin_stop(key, cause, grace); });
  }
  if (process->waits) {
    v1::Outcome outcome;
    outcome.set_cause(cause);
    return finish(key, std::move(outcome));
  }
  if (process->stopping == v1::Outcome::CAUSE_UNSPECIFIED) {
    process->stopping = cause;
    context_.trace.note("process-stopped", {key.job.value, key.attempt, static_cast<uint64_t>(cause)});
    if (!process->behaviour.ignores_term) {
      later(context_.some_ms(1, 300), [this, key] {
        Process* ending = running(key);
        if (ending == nullptr) return;
        v1::Outcome outcome;
        outcome.set_cause(ending->stopping);
        outcome.set_signal(15);
        finish(key, std::move(outcome));
      });
    }
  }
  later(grace, [this, key] {
    Process* ending = running(key);
    if (ending == nullptr) return;
    v1::Outcome outcome;
    outcome.set_cause(ending->stopping);
    outcome.set_signal(9);
    finish(key, std::move(outcome));
  });
}

void Machine::finish(const AttemptKey& key, v1::Outcome outcome) {
  Process& process = processes_.at(key);
  context_.trace.note("process-ends", {key.job.value, key.attempt, static_cast<uint64_t>(outcome.cause()),
                                       static_cast<uint64_t>(outcome.exit_code())});
  outcome.set_started_unix_ns(process.started_unix_ns);
  if (process.alive) {
    process.alive = false;
    context_.auditor.on_process_ended(key, to_model(outcome));
    leave_busy(process);
  }
  process.outcome = outcome;
  tell(key, [key, outcome = std::move(outcome)](NodeCore& core) { core.on_shim_ended(key, outcome); });
}

void Machine::leave_busy(const Process& process) {
  if (process.waits || !context_.on(Fault::kBusyDevice) || process.behaviour.busy_after_ms == 0) return;
  for (const HeldDevice& device : process.request.devices) {
    if (device.is_slice()) {
      leave_busy(process, device);
      continue;
    }
    Gpu& gpu = gpus_.at(device.index);
    gpu.busy_pid = context_.prng.chance(500) ? process.pid : -1;
    gpu.busy_number += 1;
    context_.auditor.on_device_busy(gpu.facts.uuid, true);
    context_.trace.note("device-stays-busy", {process.request.key.job.value, device.index}, gpu.facts.uuid);
    later(milliseconds(process.behaviour.busy_after_ms), [this, &gpu, number = gpu.busy_number] {
      if (gpu.busy_number == number) clear_busy(gpu);
    });
  }
}

// In a slice nothing is left but processes: its memory goes with it.
void Machine::leave_busy(const Process& process, const HeldDevice& device) {
  Gpu& gpu = gpus_.at(device.index);
  const auto at = gpu.slices.find(device.mig_start);
  if (at == gpu.slices.end()) return;
  at->second.busy_pid = process.pid;
  const uint64_t number = ++at->second.busy_number;
  context_.auditor.on_slice_busy(gpu.facts.uuid, device.mig_start, true);
  context_.trace.note("slice-stays-busy", {process.request.key.job.value, device.index}, gpu.facts.uuid);
  later(milliseconds(process.behaviour.busy_after_ms), [this, &gpu, start = device.mig_start, number] {
    const auto slice = gpu.slices.find(start);
    if (slice != gpu.slices.end() && slice->second.busy_number == number)
      clear_busy(gpu, start, slice->second);
  });
}

void Machine::clear_busy(const Gpu& gpu, int32_t start, Slice& slice) {
  if (slice.busy_pid == 0) return;
  slice.busy_pid = 0;
  context_.auditor.on_slice_busy(gpu.facts.uuid, start, false);
}

void Machine::clear_busy(Gpu& gpu) {
  if (gpu.busy_pid == 0) return;
  gpu.busy_pid = 0;
  context_.auditor.on_device_busy(gpu.facts.uuid, false);
}

void Machine::adopt(const std::vector<AttemptKey>& keys) {
  for (const AttemptKey& key : keys) {
    const auto found = processes_.find(key);
    if (found == processes_.end()) {
      tell(key, [key](NodeCore& core) { core.on_shim_lost(key, "no trace of it"); });
    } else if (found->second.waits && found->second.alive) {
      tell(key, [key](NodeCore& core) { core.on_shim_prepared(key); });
    } else if (found->second.alive) {
      tell(key, [key, pid = found->second.pid, at = found->second.started_unix_ns](NodeCore& core) {
        core.on_shim_started(key, pid, at);
      });
    } else if (found->second.outcome) {
      tell(key,
           [key, outcome = *found->second.outcome](NodeCore& core) { core.on_shim_ended(key, outcome); });
    } else {
      tell(key, [key](NodeCore& core) { core.on_shim_lost(key, "its shim is gone"); });
    }
  }
  for (const auto& [key, process] : processes_) {
    if (!process.alive || std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    tell(key,
         [key = key, waits = process.waits, pid = process.pid, at = process.started_unix_ns](NodeCore& core) {
           if (waits) return core.on_shim_prepared(key);
           core.on_shim_found(key, pid, at);
         });
  }
}

// Devices.

DeviceReading Machine::reading_of(uint32_t index) const {
  const Gpu& gpu = gpus_.at(index);
  DeviceReading reading{.condition = gpu.condition, .detail = gpu.detail, .memory_used_mb = kIdleMemoryMb};
  reading.temperature_celsius = gpu.celsius;
  reading.ecc_uncorrected = gpu.ecc_uncorrected;
  for (const auto& [key, process] : processes_) {
    if (!process.alive || process.waits) continue;
    for (const HeldDevice& device : process.request.devices) {
      if (device.index != index) continue;
      reading.processes.push_back(process.pid);
      reading.memory_used_mb += kJobMemoryMb;
    }
  }
  for (const auto& [start, slice] : gpu.slices) {
    SliceReading& shown = reading.slices.emplace_back(
        SliceReading{.profile = slice.profile, .start = start, .made = slice.made});
    shown.processes = in_slice(index, start);
    if (slice.busy_pid == 0) continue;
    reading.processes.push_back(slice.busy_pid);
    reading.memory_used_mb += kJobMemoryMb;
  }
  if (gpu.busy_pid > 0) reading.processes.push_back(gpu.busy_pid);
  if (gpu.busy_pid != 0) reading.memory_used_mb += kJobMemoryMb;
  if (has_daemons_) add_daemons(reading);
  return reading;
}

void Machine::add_daemons(DeviceReading& reading) {
  reading.process_memory_mb.assign(reading.processes.size(), kJobMemoryMb);
  for (const int64_t pid : {kMpsPid, kMonitorPid}) {
    reading.processes.push_back(pid);
    reading.process_memory_mb.push_back(kDaemonMemoryMb);
    reading.memory_used_mb += kDaemonMemoryMb;
  }
  set_daemons_apart(reading, default_gpu_daemons(), program_of);
}

DeviceReading Machine::take_reading(uint32_t index) {
  const Gpu& gpu = gpus_.at(index);
  // A driver that does not answer tells zeros, also of a device in use.
  if (gpu.condition != v1::DEVICE_CONDITION_OK)
    return {.condition = gpu.condition, .detail = gpu.detail, .utilization_percent = 0};
  DeviceReading reading = reading_of(index);
  reading.xids = std::exchange(gpus_.at(index).xids, {});
  return reading;
}

std::optional<DeviceReading> Machine::read(uint32_t index) {
  const uint32_t gpu = gpu_of(index);
  if (!context_.on(Fault::kSlowDriver) || !context_.prng.chance(200)) return take_reading(gpu);
  const Duration delay =
      context_.prng.chance(20) ? context_.some_ms(20'000, 60'000) : context_.some_ms(1, 2'000);
  // The driver looks at once or at the end of the call.
  std::optional<DeviceReading> early;
  if (context_.prng.chance(500)) early = take_reading(gpu);
  context_.trace.note("slow-reading", {index, static_cast<uint64_t>(delay.ms())});
  open_readings_ += 1;
  later(delay, [this, index, gpu, agent = agent_, early = std::move(early)] {
    if (agent != agent_) return;
    open_readings_ -= 1;
    to_agent_([index, reading = early ? *early : take_reading(gpu)](NodeCore& core) {
      core.on_reading(index, reading);
    });
  });
  return std::nullopt;
}

// Slices.

void Machine::cut(std::function<Input()> work) {
  cut_at_ = std::max(cut_at_, context_.schedule.now() + context_.some_ms(1, 300));
  later(cut_at_ - context_.schedule.now(), [this, agent = agent_, work = std::move(work)] {
    // A request of an agent that died meanwhile is done or not.
    if (agent != agent_ && context_.prng.chance(500)) return;
    const Input answer = work();
    if (agent == agent_) to_agent_(answer);
  });
}

std::vector<int64_t> Machine::in_slice(uint32_t index, int32_t start) const {
  std::vector<int64_t> pids;
  for (const auto& [key, process] : processes_) {
    if (!process.alive || process.waits) continue;
    for (const HeldDevice& device : process.request.devices) {
      if (device.index == index && device.is_slice() && device.mig_start == start)
        pids.push_back(process.pid);
    }
  }
  const auto slice = gpus_.at(index).slices.find(start);
  if (slice != gpus_.at(index).slices.end() && slice->second.busy_pid != 0)
    pids.push_back(slice->second.busy_pid);
  return pids;
}

std::string Machine::make(uint32_t index, const std::string& profile, int32_t start) {
  Gpu& gpu = gpus_.at(index);
  const mig::Table* table = mig::table_of(gpu.facts.model, gpu.facts.memory_mb);
  const mig::Profile* wanted = table == nullptr ? nullptr : table->profile(profile);
  if (!gpu.facts.mig || wanted == nullptr) return "the GPU has no such profile";
  if (context_.on(Fault::kStartFails) && context_.prng.chance(50)) return "the driver does not answer";
  std::vector<mig::Instance> present;
  for (const auto& [at, slice] : gpu.slices) {
    const bool same = at == start && slice.profile == profile && in_slice(index, at).empty();
    if (same) return {};
    present.push_back({.profile = table->profile(slice.profile), .start = at});
  }
  if (!mig::fits(*table, present, *wanted, start)) {
    context_.auditor.fail("a slice is to be made of " + gpu.facts.uuid + " where another one is");
    return "there is no room for it";
  }
  const int32_t number = next_slice_++;
  gpu.slices[start] = {.profile = profile,
                       .made = {.uuid = "MIG-" + gpu.facts.uuid + "-" + std::to_string(number),
                                .gpu_instance = number,
                                .compute_instance = 0}};
  context_.auditor.on_slice(gpu.facts.uuid, start, true);
  return {};
}

std::string Machine::destroy(uint32_t index, const std::string& profile, int32_t start) {
  Gpu& gpu = gpus_.at(index);
  const auto there = gpu.slices.find(start);
  if (there == gpu.slices.end() || there->second.profile != profile) return {};
  if (!in_slice(index, start).empty()) return "something runs in it";
  gpu.slices.erase(there);
  context_.auditor.on_slice(gpu.facts.uuid, start, false);
  return {};
}

void Machine::make_slice(uint32_t index, const std::string& profile, int32_t start) {
  cut([this, index, gpu = gpu_of(index), profile, start]() -> Input {
    const std::string problem = make(gpu, profile, start);
    if (!problem.empty()) context_.auditor.on_slice_refused(gpus_.at(gpu).facts.uuid, start);
    context_.trace.note("slice-made", {index, static_cast<uint64_t>(start)}, profile + problem);
    MadeSlice made;
    if (problem.empty()) made = gpus_.at(gpu).slices.at(start).made;
    return [index, profile, start, made, problem](NodeCore& core) {
      core.on_slice_made(index, profile, start, made, problem);
    };
  });
}

void Machine::destroy_slice(uint32_t index, const std::string& profile, int32_t start) {
  cut([this, index, gpu = gpu_of(index), profile, start]() -> Input {
    const std::string problem = destroy(gpu, profile, start);
    context_.trace.note("slice-destroyed", {index, static_cast<uint64_t>(start)}, profile + problem);
    return [index, profile, start, problem](NodeCore& core) {
      core.on_slice_destroyed(index, profile, start, problem);
    };
  });
}

bool Machine::switch_mig(uint32_t index) {
  DeviceFacts& facts = gpus_.at(index).facts;
  if (mig::table_of(facts.model, facts.memory_mb) == nullptr) return false;
  facts.mig = !facts.mig;
  return true;
}

void Machine::set_condition(uint32_t index, v1::DeviceCondition condition, const std::string& detail) {
  gpus_.at(index).condition = condition;
  gpus_.at(index).detail = detail;
}

// Failures.

void Machine::agent_dies() {
  ++agent_;
  open_readings_ = 0;
  for (const auto& [key, request] : std::exchange(unlaunched_, {})) {
    if (context_.prng.chance(500)) launch(request);
  }
  stop_at_launch_.clear();
}

void Machine::power_fails() {
  ++agent_;
  open_readings_ = 0;
  unlaunched_.clear();
  stop_at_launch_.clear();
  for (auto& [key, process] : processes_) {
    if (process.alive) {
      process.alive = false;
      context_.auditor.on_process_ended(key, {.cause = EndCause::kNodeLost});
    } else if (process.outcome && context_.prng.chance(500)) {
      process.outcome.reset();
    }
  }
  cut_at_ = {};
  for (Gpu& gpu : gpus_) {
    clear_busy(gpu);
    gpu.xids.clear();
    gpu.ecc_uncorrected = 0;
    for (auto& [start, slice] : gpu.slices) {
      clear_busy(gpu, start, slice);
      context_.auditor.on_slice(gpu.facts.uuid, start, false);
    }
    gpu.slices.clear();
  }
  ++boot_;
}

std::optional<AttemptKey> Machine::some_running() const {
  std::vector<AttemptKey> alive;
  for (const auto& [key, process] : processes_) {
    if (process.alive) alive.push_back(key);
  }
  if (alive.empty()) return std::nullopt;
  return alive[context_.prng.below(alive.size())];
}

void Machine::stop_a_shim() {
  const std::optional<AttemptKey> key = some_running();
  if (!key) return;
  context_.trace.note("shim-stops", {key->job.value, key->attempt});
  processes_.at(*key).stopped = true;
}

void Machine::kill_a_shim() {
  const std::optional<AttemptKey> chosen = some_running();
  if (!chosen) return;
  const AttemptKey key = *chosen;
  Process& process = processes_.at(key);
  context_.trace.note("shim-dies", {key.job.value, key.attempt});
  process.alive = false;
  context_.auditor.on_process_ended(key, {.cause = EndCause::kShimLost});
  leave_busy(process);
  tell(key, [key](NodeCore& core) { core.on_shim_lost(key, "its shim was killed"); });
}

void Machine::replace_gpus() {
  ++replaced_;
  for (Gpu& gpu : gpus_) {
    if (gpu.busy_pid != 0 || !gpu.slices.empty()) continue;
    DeviceFacts facts = gpu.facts;
    facts.uuid = facts.uuid.substr(0, facts.uuid.find('#')) + "#" + std::to_string(replaced_);
    gpu = Gpu{.facts = std::move(facts)};
  }
  context_.trace.note("gpus-replaced", {static_cast<uint64_t>(replaced_)});
}

void Machine::heal() {
  black_hole_ = false;
  refusals_ = 0;
  for (auto& [key, process] : processes_) process.stopped = process.stopped && process.deaf;
  for (Gpu& gpu : gpus_) {
    clear_busy(gpu);
    for (auto& [start, slice] : gpu.slices) clear_busy(gpu, start, slice);
    gpu.celsius = kIdleCelsius;
    gpu.xids.clear();
    gpu.condition = v1::DEVICE_CONDITION_OK;
    gpu.detail.clear();
  }
}

bool Machine::is_empty() const {
  return unlaunched_.empty() && std::none_of(processes_.begin(), processes_.end(),
                                             [](const auto& process) { return process.second.alive; });
}

bool Machine::is_clean(const std::string& uuid) const {
  for (uint32_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].facts.uuid != uuid) continue;
    const DeviceReading reading = reading_of(i);
    const int64_t daemons_mb = has_daemons_ ? 2 * kDaemonMemoryMb : 0;
    return reading.processes.empty() && reading.memory_used_mb == kIdleMemoryMb + daemons_mb;
  }
  return true;
}

}  // namespace gpusched::sim
