#include "node/core/orders.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/job_signals.h"
#include "base/limits.h"
#include "base/text/trace_context.h"
#include "base/text/trace_variable.h"
#include "log/log.h"

namespace gpusched::agent {

// Orders to start.

void Orders::on_start(const v1::StartAttempt& order) {
  const AttemptKey key = from_wire(order.key());
  if (AttemptRow* const known = parts_.attempts.find(key); known != nullptr) {
    if (known->was_placed(order.placed_at_ns())) return parts_.reports.again(*known);
    refuse_number(order.key(), order.placed_at_ns(), v1::Outcome::NODE_LOST);
    return parts_.fence.release_unheld(order);
  }
  log_event(LogLevel::kInfo, "agent", "task_received", {.id = key.job},
            {{"attempt", key.attempt}, {"gpus", order.devices_size()}});
  std::vector<HeldDevice> devices = held_devices_of(order);
  if (const std::optional<std::string> conflict = parts_.fence.conflict_of(devices))
    return refuse_start(order, *conflict);

  AttemptRow& attempt = parts_.attempts.add(key, AttemptState::kOrdered);
  attempt.devices = std::move(devices);
  const bool sliced = std::any_of(attempt.devices.begin(), attempt.devices.end(),
                                  [](const HeldDevice& device) { return device.is_slice(); });
  // With slices it gets its box when they are made; what is refused anyway is refused before.
  Result<SpawnRequest> plan = plan_(order, sliced ? nullptr : parts_.ports.boxes, {});
  if (plan.ok() && parts_.attempts.running_count() > limits::kAttemptsPerNodeMax) {
    plan = Error{.code = ErrorCode::kUnavailable,
                 .message = "this node already runs its maximum number of attempts"};
  }
  if (plan.ok() && sliced && parts_.ports.slices == nullptr)
    plan = Error{.code = ErrorCode::kUnavailable, .message = "this node does not create MIG slices"};
  bool is_kept = true;
  if (plan.ok() && !order.payload().empty()) {
    if (const Result<Unit> kept = parts_.ports.files.keep_payload(key, order.payload()); !kept) {
      plan = kept.error();
      is_kept = false;
    }
  }
  attempt.placed_at_ns = order.placed_at_ns();
  parts_.fence.hold(attempt);
  if (!is_kept) {  // The node's fault and not the task's: another node may have room.
    record_intent(attempt, {});
    return parts_.endings.end(attempt, v1::Outcome::NODE_FAULT, plan.error().message);
  }
  if (plan.ok() && plan->lost_contact.ns > 0 &&
      parts_.ports.clock.monotonic() - parts_.leases.contact_at() >= plan->lost_contact) {
    // The order lay about for so long that the scheduler may take its attempt for over.
    record_intent(attempt, {});
    return parts_.endings.end(attempt, v1::Outcome::CONTACT_LOST, "the order to start it arrived too late");
  }
  if (!plan || !sliced) return queue_start(attempt, std::move(plan));
  record_intent(attempt, {});
  parts_.slices.begin(attempt, order);
}

void Orders::not_obeyed(const v1::StartAttempt& order, const std::string& why) {
  if (parts_.attempts.find(from_wire(order.key())) != nullptr) return;  // The outcome of that one is told.
  if (parts_.reports.unacknowledged_count() > limits::kAttemptsPerNodeMax) return;
  parts_.reports.ended_other(order.key(), order.placed_at_ns(),
                             parts_.endings.outcome(v1::Outcome::NODE_FAULT, why));
}

/// Refuses the start. Its giver believes that the earlier user of the device is over: as long as it is not,
/// nothing else runs there.
void Orders::refuse_start(const v1::StartAttempt& order, const std::string& why) {
  AttemptRow& attempt = parts_.attempts.add(from_wire(order.key()), AttemptState::kOrdered);
  attempt.placed_at_ns = order.placed_at_ns();
  record_intent(attempt, {});
  parts_.endings.end(attempt, v1::Outcome::NODE_FAULT, why);
  parts_.fence.release_unheld(order);
}

// The number is taken, by an attempt from before the scheduler's data was restored: its folder and its
// records are that one's. The scheduler tries again under the next number.
void Orders::refuse_number(const v1::AttemptKey& key, int64_t placed_at_ns, v1::Outcome::Cause cause) {
  parts_.reports.ended_other(
      key, placed_at_ns,
      parts_.endings.outcome(cause,
                             "this node has another attempt with this number, from before the scheduler's "
                             "data was restored from an older copy"));
}

void Orders::record_intent(const AttemptRow& attempt, std::vector<uint32_t> cores) {
  parts_.records.append({.kind = StoreRecord::Kind::kIntent,
                         .key = attempt.key,
                         .devices = attempt.devices,
                         .user = attempt.user,
                         .cores = std::move(cores),
                         .placed_at_ns = attempt.placed_at_ns});
  if (attempt.devices.empty()) return;
  StoreRecord named{.kind = StoreRecord::Kind::kDevices, .key = attempt.key};
  const std::vector<DeviceFacts>& facts = parts_.watch.facts();
  for (const HeldDevice& device : attempt.devices)
    named.device_uuids.push_back(device.index < facts.size() ? facts[device.index].uuid : std::string());
  parts_.records.append(named);
}

/// It is started when its intent is on record.
void Orders::queue_start(AttemptRow& attempt, Result<SpawnRequest> plan) {
  if (plan) {
    attempt.user = plan->user;
    attempt.identity = plan->identity;
  }
  record_intent(attempt, plan ? plan->box.cpus : std::vector<uint32_t>{});
  if (!plan) return parts_.endings.end(attempt, v1::Outcome::START_FAILED, plan.error().message);
  parts_.ports.files.began(attempt.key);
  if (parts_.ports.hooks != nullptr && parts_.ports.hooks->has_prolog()) {
    attempt.prolog = true;
    parts_.records.append({.kind = StoreRecord::Kind::kProlog, .key = attempt.key});
  }
  add_mps(attempt, *plan);
  attempt.request = std::make_unique<SpawnRequest>(std::move(*plan));
  to_start_.push_back(&attempt);
}

void Orders::on_slices_done(AttemptRow& attempt) {
  const std::unique_ptr<AttemptRow::Slicing> slicing = std::move(attempt.slicing);
  if (!slicing->problem.empty())
    return parts_.endings.end(attempt, v1::Outcome::DEVICE_FAULT, slicing->problem);
  if (attempt.stopped_early)
    return parts_.endings.end(attempt, v1::Outcome::STOPPED, "stopped before it began");
  parts_.attempts.move(attempt, AttemptState::kOrdered);
  queue_start(attempt, plan_(slicing->order, parts_.ports.boxes, slicing->made));
}

/// A share's limits are enforced by the multi-process service, which its job must find.
void Orders::add_mps(const AttemptRow& attempt, SpawnRequest& request) const {
  if (attempt.devices.empty() || request.container) return;
  const HeldDevice& device = attempt.devices.front();
  if (!device.is_share() || device.is_slice() || device.index >= parts_.watch.facts().size()) return;
  const DaemonReading* const mps = find_mps(parts_.watch.last_reading(device.index));
  if (mps == nullptr || mps->mps_directory.empty()) return;
  const std::string name = "CUDA_MPS_PIPE_DIRECTORY=";
  const bool own = std::any_of(request.environment.begin(), request.environment.end(),
                               [&](const std::string& entry) { return entry.starts_with(name); });
  if (!own) request.environment.push_back(name + mps->mps_directory);
  if (request.worker == nullptr) return;
  auto worker = std::make_shared<WorkerPlan>(*request.worker);
  worker->environment.push_back(name + mps->mps_directory);
  worker->match += '\0' + mps->mps_directory;
  request.worker = std::move(worker);
}

void Orders::start_queued() {
  for (AttemptRow* attempt : std::exchange(to_start_, {})) {
    if (attempt->state() != AttemptState::kOrdered) continue;  // A shim that was found runs it.
    if (!begin_prolog(*attempt)) start(*attempt);
  }
}

/// True: the attempt starts after its prolog, by `on_prolog_done`.
bool Orders::begin_prolog(AttemptRow& attempt) {
  if (parts_.ports.hooks == nullptr || !parts_.ports.hooks->has_prolog()) return false;
  parts_.attempts.move(attempt, AttemptState::kPreparing);
  parts_.ports.hooks->prolog(attempt.key, attempt.request->devices);
  return true;
}

void Orders::on_prolog_done(const AttemptKey& key, const std::string& problem) {
  AttemptRow* const attempt = parts_.attempts.find(key);
  if (attempt == nullptr || attempt->state() != AttemptState::kPreparing) return;
  if (!problem.empty()) {
    parts_.checks.note_fault(problem);
    return parts_.endings.end(*attempt, v1::Outcome::NODE_FAULT, problem);
  }
  if (attempt->stopped_early)
    return parts_.endings.end(*attempt, v1::Outcome::STOPPED, "stopped before it began");
  start(*attempt);
}

namespace {

/// The value of a variable; empty: there is none.
std::string_view variable_of(const SpawnRequest& request, std::string_view name) {
  for (const std::string& entry : request.environment) {
    const std::string_view text = entry;
    if (text.starts_with(name) && text.substr(name.size()).starts_with('='))
      return text.substr(name.size() + 1);
  }
  return {};
}

/// The job's start is found by the trace that it belongs to, and by what its client called its submission.
void tell_trace(const SpawnRequest& request) {
  const std::string_view trace = trace_id_of(variable_of(request, kTraceVariable));
  const std::string_view given = variable_of(request, kRequestVariable);
  const std::string_view id = is_request_name(given) ? given : std::string_view();
  const auto tell = [&](std::initializer_list<LogField> details) {
    log_event(LogLevel::kInfo, "agent", "task_starting", {.id = request.key.job}, details);
  };
  const LogField attempt{"attempt", request.key.attempt}, trace_id{"trace_id", trace},
      request_id{"request_id", id};
  if (!trace.empty() && !id.empty()) return tell({attempt, trace_id, request_id});
  if (!trace.empty()) return tell({attempt, trace_id});
  if (!id.empty()) tell({attempt, request_id});
}

}  // namespace

void Orders::start(AttemptRow& attempt) {
  parts_.attempts.move(attempt, AttemptState::kStarting);
  const std::unique_ptr<SpawnRequest> request = std::move(attempt.request);
  attempt.run_limit = {.max_runtime = request->max_runtime, .grace = request->grace, .since = {}};
  parts_.attempts.set_due(attempt, Deadline::kStart, parts_.ports.clock.monotonic() + patience_);
  tell_trace(*request);
  parts_.ports.spawner.start(std::move(*request));
}

void Orders::on_begun(AttemptRow& attempt) {
  if (attempt.run_limit) attempt.run_limit->since = parts_.ports.clock.monotonic();
  expect_end_of_run(attempt);
}

// While it runs.

void Orders::on_gang_release(const v1::GoAttempt& order) {
  AttemptRow* const attempt = parts_.attempts.find(from_wire(order.key()));
  if (attempt == nullptr || !attempt->was_placed(order.placed_at_ns())) return;
  if (attempt->over() || attempt->pid != 0) return parts_.reports.again(*attempt);
  attempt->may_go = true;
  if (attempt->state() == AttemptState::kGated) parts_.ports.spawner.go(attempt->key);
}

void Orders::on_change(const v1::ChangeAttempt& order) {
  AttemptRow* const attempt = parts_.attempts.find(from_wire(order.key()));
  if (attempt == nullptr || attempt->over()) return;
  const Duration limit =
      milliseconds(std::clamp<int64_t>(order.max_runtime_ms(), 0, limits::kRuntimeMax.ns / 1'000'000));
  if (attempt->request) attempt->request->max_runtime = limit;
  if (attempt->slicing) attempt->slicing->order.set_max_runtime_ms(limit.ms());
  parts_.ports.spawner.set_max_runtime(attempt->key, limit);
  if (attempt->run_limit) attempt->run_limit->max_runtime = limit;
  expect_end_of_run(*attempt);
}

// Orders to stop.

void Orders::on_stop(const v1::StopAttempt& order) {
  const AttemptKey key = from_wire(order.key());
  AttemptRow* const known = parts_.attempts.find(key);
  if (known == nullptr) {
    // Recorded as ended, it is refused should its start still arrive.
    AttemptRow& never = parts_.attempts.add(key, AttemptState::kOrdered);
    never.placed_at_ns = order.placed_at_ns();
    return parts_.endings.end(never, v1::Outcome::STOPPED, "never started");
  }
  if (!known->was_placed(order.placed_at_ns())) {
    return refuse_number(order.key(), order.placed_at_ns(), v1::Outcome::STOPPED);
  }
  if (known->over()) return parts_.reports.again(*known);
  if (known->state() == AttemptState::kOrdered) return take_back_start(*known);
  if (known->state() == AttemptState::kPreparing || known->state() == AttemptState::kSlicing) {
    known->stopped_early = true;
    return;
  }
  const Duration grace = order.grace_ms() > 0 ? milliseconds(order.grace_ms()) : grace_;
  StopOrder told(std::min(grace, limits::kRuntimeMax));
  const auto signal = parse_job_signal(std::to_string(order.signal()));
  if (signal) told.signal = signal->number;
  told.until_saved = order.until_saved();
  stop(*known, told);
}

/// A start that waits until its intent is on record, as it does while the disk is full, is not carried out
/// any more: a shim that is not there could not be told to stop.
void Orders::take_back_start(AttemptRow& attempt) {
  std::erase(to_start_, &attempt);
  attempt.prolog = false;
  parts_.endings.end(attempt, v1::Outcome::STOPPED, "stopped before it began");
}

void Orders::stop_queued() {
  for (const Stop& stop : std::exchange(to_stop_, {})) {
    if (stop.attempt->over()) continue;
    parts_.ports.spawner.stop(stop.attempt->key, stop.order);
    expect_end(*stop.attempt, stop.order);
  }
}

// Whether it came true. A shim, and what starts them, may be stopped or hang.

/// It is to have ended when its grace is over, and a while.
void Orders::expect_end(AttemptRow& attempt, const StopOrder& order) {
  const Time due = parts_.ports.clock.monotonic() + order.grace + patience_;
  if (attempt.due(Deadline::kEnd) <= due) return;
  attempt.end_cause = v1::Outcome::STOPPED;
  parts_.attempts.set_due(attempt, Deadline::kEnd, due);
}

/// Its shim ends it at its maximum runtime, also where no scheduler is heard.
void Orders::expect_end_of_run(AttemptRow& attempt) {
  if (!attempt.run_limit || !attempt.run_limit->since.valid()) return;
  const AttemptRow::RunLimit& limit = *attempt.run_limit;
  const bool stops = attempt.due(Deadline::kEnd) != kNever && attempt.end_cause == v1::Outcome::STOPPED;
  if (stops) return;
  attempt.end_cause = v1::Outcome::TIMEOUT;
  const bool limited = limit.max_runtime.ns != 0;
  parts_.attempts.set_due(attempt, Deadline::kEnd,
                          limited ? limit.since + limit.max_runtime + limit.grace + patience_ : kNever);
}

void Orders::look(Time now) {
  end_late(now);
  replace_late_server(now);
}

void Orders::end_late(Time now) {
  for (AttemptRow* attempt : parts_.attempts.late(Deadline::kEnd, now)) {
    log_event(LogLevel::kError, "agent",
              attempt->end_cause == v1::Outcome::TIMEOUT ? "limit_not_carried_out" : "stop_not_carried_out",
              {.id = attempt->key.job},
              {{"attempt", attempt->key.attempt}, {"action", "its shim and its processes are being killed"}});
    parts_.attempts.set_due(*attempt, Deadline::kEnd, now + patience_);
    attempt->ignored_order = attempt->end_cause;
    parts_.ports.spawner.force_end(attempt->key);
  }
}

void Orders::replace_late_server(Time now) {
  if (parts_.attempts.in(AttemptState::kStarting).empty()) return;
  for (const Preparation& preparation : parts_.ports.spawner.preparing()) {
    AttemptRow* const attempt = parts_.attempts.find(preparation.key);
    if (attempt != nullptr && attempt->due(Deadline::kStart) != kNever)
      parts_.attempts.set_due(*attempt, Deadline::kStart, now + patience_);
  }
  if (parts_.attempts.late(Deadline::kStart, now).empty()) return;
  std::vector<AttemptRow*> unheard;
  for (AttemptRow* attempt : parts_.attempts.in(AttemptState::kStarting)) {
    if (attempt->due(Deadline::kStart) != kNever) unheard.push_back(attempt);
  }
  const std::string problem = "gpu-shim has not carried out an order for " +
                              std::to_string(patience_.ms() / 1'000) + " s and is being replaced";
  log_event(LogLevel::kError, "agent", "start_not_carried_out", {.id = unheard.front()->key.job},
            {{"attempts", unheard.size()}, {"action", problem}});
  for (AttemptRow* attempt : unheard) {
    parts_.attempts.set_due(*attempt, Deadline::kStart, kNever);
    attempt->ignored_order = v1::Outcome::NODE_FAULT;
  }
  parts_.checks.note_fault(problem);
  parts_.ports.spawner.replace_server();
}

v1::Outcome Orders::outcome_of_lost(const AttemptRow& attempt, const std::string& detail) const {
  if (attempt.of_earlier_boot)
    return parts_.endings.outcome(v1::Outcome::NODE_LOST, "the node was restarted");
  return parts_.endings.outcome(attempt.ignored_order.value_or(v1::Outcome::SHIM_LOST), detail);
}

}  // namespace gpusched::agent
