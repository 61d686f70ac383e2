#include "forecast/run.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"
#include "base/limits.h"
#include "base/overloaded.h"
#include "base/prng.h"

namespace gpusched::forecast {
namespace {

/// Looks in a row that the planner may take again although nothing else ever happens.
constexpr int kIdleLooksMax = 64;

EndCause cause_of(StopReason reason) {
  return reason == StopReason::kTimeout ? EndCause::kTimeout : EndCause::kStopped;
}

/// The part of what is likely for the job that the run sees: each run another one, in an order of the job's
/// own (McKay, Beckman, Conover 1979, Latin hypercube sampling). 0 to 999.
int32_t part_of(JobId job, uint32_t attempt, const Options& options, uint32_t number) {
  Prng prng(options.seed * 0x9E3779B97F4A7C15ULL ^ job.value * 0xD1B54A32D192ED03ULL ^ attempt);
  // A walk of all runs from anywhere, in steps that have no factor in common with their number.
  const uint64_t runs = options.runs;
  const uint64_t first = prng.below(runs);
  uint64_t step = 1 + prng.below(runs);
  while (std::gcd(step, runs) != 1) ++step;
  const uint64_t stratum = (first + step * number) % runs;
  const uint64_t within = Prng(prng.next() + number).below(1000);
  return static_cast<int32_t>((stratum * 1000 + within) / runs);
}

}  // namespace

Run::Run(World world, RunSource& source, const Options& options, uint32_t number, Placed placed,
         Promised promised)
    : world_(std::move(world)),
      source_(source),
      options_(options),
      number_(number),
      placed_(std::move(placed)),
      promised_(std::move(promised)) {
  begin();
}

void Run::add(Coming coming) {
  coming.at = std::max(coming.at, world_.now());
  coming.order = order_++;
  coming_.push(coming);
}

// A silent node reports nothing.
bool Run::reports(NodeId node) const {
  const Node* found = world_.state().find_node(node);
  CHECK(found != nullptr);
  return found->state == NodeState::kReady;
}

void Run::expect_end(const Attempt& attempt, uint32_t member, Time started_at) {
  const Job* job = world_.state().jobs.find(attempt.job);
  if (job == nullptr) return;
  const Duration elapsed = std::max(world_.now() - started_at, Duration{});
  const int32_t part = part_of(attempt.job, attempt.number, options_, number_);
  add({.at = started_at + source_.whole_run(world_.state(), *job, elapsed, part),
       .kind = Kind::kEnd,
       .job = attempt.job,
       .attempt = attempt.number,
       .member = member,
       .node = attempt.members[member].node});
}

void Run::expect_stop(const Attempt& attempt) {
  for (uint32_t i = 0; i < attempt.members.size(); ++i) {
    if (attempt.members[i].state == MemberState::kEnded || !reports(attempt.members[i].node)) continue;
    add({.at = world_.now() + options_.stop_delay,
         .kind = Kind::kEnd,
         .job = attempt.job,
         .attempt = attempt.number,
         .member = i,
         .node = attempt.members[i].node,
         .cause = cause_of(attempt.stop)});
  }
}

// A device that was not empty at once may take as long again as it took until now.
Duration Run::release_delay(Time draining_since) const {
  return std::max(options_.release_delay, world_.now() - draining_since);
}

void Run::expect_releases(const Node& node, uint64_t mask) {
  for (; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    for (const Share& share : node.devices[index].shares) {
      if (!share.draining()) continue;
      add({.at = world_.now() + release_delay(share.draining_since),
           .kind = Kind::kRelease,
           .job = share.held_by.job,
           .attempt = share.held_by.attempt,
           .member = share.held_by.member,
           .node = node.id,
           .device = index,
           .generation = node.devices[index].generation});
    }
    if (node.devices[index].state != DeviceState::kDraining) continue;
    add({.at = world_.now() + release_delay(node.devices[index].draining_since),
         .kind = Kind::kRelease,
         .node = node.id,
         .device = index,
         .generation = node.devices[index].generation});
  }
}

void Run::begin() {
  for (const auto& [key, attempt] : world_.state().attempts) {
    if (attempt.stop != StopReason::kNone) {
      expect_stop(attempt);
      continue;
    }
    for (uint32_t i = 0; i < attempt.members.size(); ++i) {
      const Member& member = attempt.members[i];
      if (member.state == MemberState::kEnded || !reports(member.node)) continue;
      if (!has_begun(member.state)) {
        add({.at = world_.now() + options_.start_delay,
             .kind = Kind::kStart,
             .job = attempt.job,
             .attempt = attempt.number,
             .member = i,
             .node = member.node});
      } else {
        expect_end(attempt, i, attempt.started_at.valid() ? attempt.started_at : attempt.placed_at);
      }
    }
  }
  for (const Node& node : world_.state().nodes) {
    if (node.state != NodeState::kReady || node.devices.empty()) continue;
    expect_releases(node, ~uint64_t{0} >> (limits::kDevicesPerNodeMax - node.devices.size()));
  }
}

void Run::carry_out(const Coming& coming) {
  switch (coming.kind) {
    case Kind::kStart:
      world_.apply(AttemptStarted{
          .job = coming.job, .attempt = coming.attempt, .member = coming.member, .node = coming.node});
      return;
    case Kind::kEnd: {
      const Attempt* attempt = world_.state().find_attempt(coming.job, coming.attempt);
      if (attempt == nullptr || attempt->members[coming.member].state == MemberState::kEnded) return;
      const uint64_t mask = attempt->members[coming.member].device_mask;
      world_.apply(AttemptEnded{.job = coming.job,
                                .attempt = coming.attempt,
                                .member = coming.member,
                                .node = coming.node,
                                .outcome = {.cause = coming.cause, .detail = {}}});
      expect_releases(world_.state().node_at(coming.node), mask);
      return;
    }
    case Kind::kRelease:
      world_.apply(DeviceReleased{
          .node = coming.node,
          .device = coming.device,
          .generation = coming.generation,
          .share_of = {.job = coming.job, .attempt = coming.attempt, .member = coming.member}});
      return;
  }
}

// Looks at the newest command's events for what will follow from them.
void Run::look_at_events() {
  const State& state = world_.state();
  const auto visitor = Overloaded{
      [&](const AttemptPlaced& placed) { note_placed(placed); },
      [&](const MemberStarted& started) {
        const Attempt* attempt = state.find_attempt(started.job, started.attempt);
        if (attempt != nullptr) expect_end(*attempt, started.member, started.at);
      },
      [&](const StopRequested& stopped) {
        const Attempt* attempt = state.find_attempt(stopped.job, stopped.attempt);
        if (attempt != nullptr) expect_stop(*attempt);
      },
      [&](const DevicesPromised& promised) {
        if (promised_ && !promised.promise->victims.empty()) promised_(*promised.promise);
      },
      Ignores<Configured, TenantCreated, TenantUpdated, TenantDeleted, NodeRegistered, NodeStateChanged,
              DeviceConditionChanged, JobSubmitted, RequestRemembered, OldestRequestForgotten, MemberEnded,
              AttemptAbandoned, JobFinished, JobRequeued, BackoffEnded, JobsForgotten, DeviceFreed,
              DeviceOccupied, DeviceQuarantined, TimerDropped, JobUpdated, JobHoldChanged,
              NodeAvailabilityChanged, NodeLabeled, NodeFailureNoted, TimeSkipped, DeviceBarred,
              DependencySettled, ElementAdded, ArrayClosed, PromiseEnded, JobCheckpointed, Admitted,
              BookingMade, BookingBegan, BookingEnded, ShareFreed, DeviceHeatChanged, MemberPrepared,
              DeviceFaultChanged, NodeSuspected, WatchdogFindingChanged, ElementUnparked, RequestForgotten,
              NodeRemoved, TenantsForgotten, JobAsked, KeyCreated, KeyRevoked, RoleBound, KeyForgotten,
              NodeTicketCreated, NodeTicketForgotten, NodeAdmitted, NodeRenewed, NodeRevoked,
              PersonRecorded>{}};
  for (const Event& event : world_.events()) std::visit(visitor, event);
}

void Run::note_placed(const AttemptPlaced& placed) {
  placed_(placed.job, placed.at);
  const Job* job = world_.state().jobs.find(placed.job);
  if (job != nullptr && job->is_element()) placed_(job->array, placed.at);
  only_started_ = only_started_ || placed.job == options_.only ||
                  (job != nullptr && job->is_element() && job->array == options_.only);
  for (uint32_t i = 0; i < placed.members.size(); ++i) {
    add({.at = world_.now() + options_.start_delay,
         .kind = Kind::kStart,
         .job = placed.job,
         .attempt = placed.attempt,
         .member = i,
         .node = placed.members[i].node});
  }
}

Time Run::next() {
  Time next = std::min(world_.state().next_due(), world_.planner().next_look());
  if (!coming_.empty()) next = std::min(next, coming_.top().at);
  return next;
}

Run::End Run::go(Work& work) {
  const Time horizon = world_.now() + limits::kForecastHorizon;
  const auto look = [this] { look_at_events(); };
  if (!world_.settle(work, look)) return End::kWork;
  int idle_looks = 0;
  while (true) {
    if (only_started_ || world_.state().waiting_count() == 0) return End::kAllStarted;
    const Time at = next();
    const bool idle = coming_.empty() && world_.state().next_due() > horizon;
    idle_looks = idle ? idle_looks + 1 : 0;
    if (at > horizon || idle_looks > kIdleLooksMax) return End::kDry;
    world_.move_to(std::max(at, world_.now()));
    while (!coming_.empty() && coming_.top().at <= world_.now()) {
      const Coming coming = coming_.top();
      coming_.pop();
      carry_out(coming);
      look_at_events();
      if (!work.take(1 + world_.events().size())) return End::kWork;
    }
    if (world_.planner().next_look() <= world_.now()) world_.planner().look_at_promises(world_.now());
    if (!world_.settle(work, look)) return End::kWork;
  }
}

}  // namespace gpusched::forecast
