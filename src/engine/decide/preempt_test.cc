#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "base/prng.h"
#include "engine/policy/victims.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using policy::Potential;
using testing::TestEngine;
using testing::Want;

TenantId tenant(TestEngine& engine, std::string_view name, int32_t tier, bool allow, bool can) {
  return TenantId{engine
                      .apply(CreateTenant{.name = std::string(name),
                                          .priority_tier = tier,
                                          .allow_preemption = allow,
                                          .can_preempt_others = can})
                      .first_id};
}

/// One node of two GPUs, each held by a job that may be ended, and an urgent job that waits.
struct Crowded {
  TestEngine engine;
  NodeId node = engine.add_node("n1", {.gpus = 2});
  TenantId batch = tenant(engine, "batch", 100, true, false);
  TenantId urgent = tenant(engine, "urgent", 5000, false, true);
  JobId first = engine.run({.gpus = 1, .tenant = batch});
  JobId second = engine.run({.gpus = 1, .tenant = batch});
  JobId job;

  explicit Crowded(int32_t gpus = 2) {
    engine.advance(minutes(2));
    job = engine.submit({.gpus = gpus, .tenant = urgent});
  }
  PlanGroup group(uint64_t mask, const std::vector<JobId>& victims) {
    PlanGroup made{.job = job, .attempt = 1, .members = {}, .preemptions = {}};
    MemberPlacement member{.node = node, .device_mask = mask};
    for (uint32_t i = 0; i < 2; ++i) {
      if (((mask >> i) & 1) != 0) member.generations.push_back(engine.device(node, i).generation);
    }
    made.members.push_back(member);
    for (const JobId victim : victims) made.preemptions.push_back({.job = victim, .attempt = 1});
    return made;
  }
  bool takes(const PlanGroup& made) {
    engine.apply(CommitPlan{.groups = {made}});
    return !engine.events().empty();
  }
};

TEST(Preempt, ATenantThatAnybodyMayMakeEndsOnlyJobsOfItsLike) {
  for (const bool victim_is_anonymous : {false, true}) {
    TestEngine engine;
    engine.add_node("n1", {.gpus = 1});
    const TenantId batch{
        engine
            .apply(CreateTenant{.name = "batch", .allow_preemption = true, .anonymous = victim_is_anonymous})
            .first_id};
    const TenantId urgent{
        engine
            .apply(CreateTenant{
                .name = "urgent", .priority_tier = 5000, .can_preempt_others = true, .anonymous = true})
            .first_id};
    engine.run({.gpus = 1, .tenant = batch});
    engine.advance(minutes(2));
    engine.submit({.gpus = 1, .tenant = urgent});
    engine.cycle();
    EXPECT_EQ(engine.count_events<StopRequested>(), victim_is_anonymous ? 1 : 0);
  }
}

TEST(Preempt, TheVictimsStopAndThePromiseAreDecidedTogether) {
  Crowded crowded;
  ASSERT_TRUE(crowded.takes(crowded.group(0b11, {crowded.first, crowded.second})));
  EXPECT_EQ(crowded.engine.count_events<StopRequested>(), 2);
  EXPECT_EQ(crowded.engine.count_events<DevicesPromised>(), 1);
  EXPECT_EQ(crowded.engine.state_of(crowded.first), JobState::kPreempted);
  EXPECT_EQ(crowded.engine.device(crowded.node, 0).promised_to, crowded.job);
  EXPECT_EQ(crowded.engine.tenant(crowded.urgent).usage.gpus, 2);
}

TEST(Preempt, AGroupWithAVictimThatIsNotNeededIsDroppedWhole) {
  Crowded crowded(1);
  EXPECT_FALSE(crowded.takes(crowded.group(0b01, {crowded.first, crowded.second})));
  EXPECT_EQ(crowded.engine.state_of(crowded.first), JobState::kRunning);
  EXPECT_TRUE(crowded.takes(crowded.group(0b01, {crowded.first})));
}

TEST(Preempt, AGroupWithAVictimThatIsGoneIsDroppedWhole) {
  Crowded crowded;
  const PlanGroup made = crowded.group(0b11, {crowded.first, crowded.second});
  crowded.engine.ended(crowded.first);
  EXPECT_FALSE(crowded.takes(made));
  EXPECT_EQ(crowded.engine.state_of(crowded.second), JobState::kRunning);
}

TEST(Preempt, AVictimIsNamedOnce) {
  Crowded crowded;
  EXPECT_FALSE(crowded.takes(crowded.group(0b01, {crowded.first, crowded.first})));
}

TEST(Preempt, DevicesOfNobodyNamedAreNotTaken) {
  Crowded crowded;
  EXPECT_FALSE(crowded.takes(crowded.group(0b11, {crowded.first})));
}

TEST(Preempt, AnOldGenerationIsRefused) {
  Crowded crowded(1);
  PlanGroup made = crowded.group(0b01, {crowded.first});
  made.members[0].generations[0] += 1;
  EXPECT_FALSE(crowded.takes(made));
}

TEST(Preempt, AnExemptJobIsNeverAVictimWhateverThePlannerSays) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const JobId exempt = engine.run({.gpus = 1, .preemption_exempt = true});
  const JobId job = engine.submit({.gpus = 1});
  engine.apply(CommitPlan{
      .groups = {{.job = job,
                  .attempt = 1,
                  .members = {{.node = engine.state().nodes[0].id, .device_mask = 1, .generations = {0}}},
                  .preemptions = {{.job = exempt, .attempt = 1}}}}});
  EXPECT_TRUE(engine.events().empty());
}

TEST(Preempt, AttainedServiceGrowsWithEachAttemptAtItsFeatureLevel) {
  for (const int64_t level : {2, 3}) {
    Crowded crowded;
    EngineConfig config = crowded.engine.state().config;
    config.feature_level = level;
    crowded.engine.apply(Configure{.config = config});
    crowded.engine.cycle();
    EXPECT_EQ(crowded.engine.state_of(crowded.first), JobState::kPreempted);
    crowded.engine.ended(crowded.first, {.cause = EndCause::kStopped, .detail = {}});
    EXPECT_EQ(crowded.engine.job(crowded.first).attained_gpu_ms, level == 2 ? 0 : 120'000);
    EXPECT_EQ(crowded.engine.job(crowded.first).extras->preempt_count, 1u);
  }
}

TEST(Preempt, AJobThatAsksForSomethingElseLosesItsPromise) {
  const auto changed = [](int64_t level, auto&& change) {
    Crowded crowded;
    EngineConfig config = crowded.engine.state().config;
    config.feature_level = level;
    crowded.engine.apply(Configure{.config = config});
    crowded.engine.cycle();
    EXPECT_NE(crowded.engine.state().find_promise(crowded.job), nullptr);
    UpdateJob command{.job = crowded.job,
                      .given = kJobParts,
                      .parts = crowded.engine.state().class_of(crowded.engine.job(crowded.job)).parts};
    change(command.parts.front());
    EXPECT_FALSE(crowded.engine.apply(command).rejection.has_value());
    return crowded.engine.state().find_promise(crowded.job) == nullptr;
  };
  const auto more_memory = [](Part& part) { part.gpu_memory_mb = 4'096; };
  const auto more_members = [](Part& part) { part.member_count = 2; };
  const auto fewer_gpus = [](Part& part) { part.gpu_count = 1; };
  EXPECT_TRUE(changed(kFeatureLevel, more_memory));
  EXPECT_TRUE(changed(kFeatureLevel, more_members));
  EXPECT_TRUE(changed(kFeatureLevel, fewer_gpus));
  EXPECT_FALSE(changed(kFeatureLevel, [](Part&) {}));
  EXPECT_FALSE(changed(5, more_memory));  // As old journals have it.
}

TEST(Preempt, ARebootKeepsThePromiseAndFulfilsIt) {
  Crowded crowded;
  crowded.engine.cycle();
  ASSERT_NE(crowded.engine.state().find_promise(crowded.job), nullptr);
  crowded.engine.apply(testing::registration_of("n1", {.gpus = 2}, "boot-2"));
  EXPECT_EQ(crowded.engine.cycle().size(), 1u);
  EXPECT_EQ(crowded.engine.state_of(crowded.job), JobState::kScheduled);
}

TEST(Preempt, APromisedJobIsReadFromAFreshPlannerToo) {
  Crowded crowded;
  crowded.engine.cycle();
  crowded.engine.ended(crowded.first, {.cause = EndCause::kStopped, .detail = {}});
  crowded.engine.ended(crowded.second, {.cause = EndCause::kStopped, .detail = {}});
  crowded.engine.release_all();
  Planner fresh(policy::default_policies());
  fresh.reset(crowded.engine.state());
  const CommitPlan plan = fresh.plan(crowded.engine.state(), crowded.engine.now()).plan;
  ASSERT_FALSE(plan.groups.empty());
  EXPECT_EQ(plan.groups[0].job, crowded.job);
  EXPECT_TRUE(plan.groups[0].preemptions.empty());
}

TEST(Preempt, APlanThatWasDroppedIsMadeAnew) {
  Crowded crowded;
  const Planner::Slice stale = crowded.engine.planner().plan(crowded.engine.state(), crowded.engine.now());
  ASSERT_EQ(stale.plan.groups.size(), 1u);
  ASSERT_EQ(stale.plan.groups[0].preemptions.size(), 2u);
  // One victim ended meanwhile.
  crowded.engine.ended(crowded.first);
  crowded.engine.apply(stale.plan);
  EXPECT_TRUE(crowded.engine.events().empty());
  crowded.engine.planner().plan_applied(crowded.engine.state());
  crowded.engine.release_all();
  const std::vector<PlanGroup> again = crowded.engine.cycle();
  ASSERT_EQ(again.size(), 1u);
  ASSERT_EQ(again[0].preemptions.size(), 1u);
  EXPECT_EQ(again[0].preemptions[0].job, crowded.second);
}

TEST(Preempt, TheNextLookIsWhenAProtectionEnds) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 1});
  const TenantId batch = tenant(engine, "batch", 100, true, false);
  const TenantId urgent = tenant(engine, "urgent", 5000, false, true);
  engine.run({.gpus = 1, .tenant = batch});
  engine.submit({.gpus = 1, .tenant = urgent});
  EXPECT_TRUE(engine.cycle().empty());
  EXPECT_EQ(engine.planner().next_look(), engine.now() + seconds(60));
}

Potential waiting(std::map<int64_t, int64_t> by_priority) {
  return {.idle = {}, .waiting = std::move(by_priority)};
}

TEST(Potential, IsComparedFromTheHighestPriorityDown) {
  EXPECT_TRUE(policy::potential_less(waiting({{1, 9}}), waiting({{2, 1}})));
  EXPECT_TRUE(policy::potential_less(waiting({{1, 1}, {2, 1}}), waiting({{1, 2}, {2, 1}})));
  EXPECT_TRUE(policy::potential_less(waiting({}), waiting({{1, 1}})));
  EXPECT_FALSE(policy::potential_less(waiting({{1, 1}}), waiting({{1, 1}})));
  EXPECT_FALSE(policy::potential_less(waiting({{2, 1}}), waiting({{1, 9}})));
}

TEST(Potential, IdleGuaranteesCountBeforePrioritiesAndTheDeepestFirst) {
  const Potential idle{.idle = {.gpus = {{-1, 3}}, .others = {{-1, 0}}}, .waiting = {{1, 1}}};
  const Potential used{.idle = {.gpus = {{-1, 2}}, .others = {{-1, 9}}}, .waiting = {{9, 9}}};
  EXPECT_TRUE(policy::potential_less(used, idle));
  EXPECT_FALSE(policy::potential_less(idle, used));
  const Potential deep{.idle = {.gpus = {{-2, 1}, {-1, 0}}, .others = {}}, .waiting = {}};
  const Potential high{.idle = {.gpus = {{-2, 0}, {-1, 9}}, .others = {}}, .waiting = {}};
  EXPECT_TRUE(policy::potential_less(high, deep));
}

/// A busy cluster with preemption, driven by chance; what must hold is checked as it goes.
class World {
 public:
  enum class Guarantees { kNone, kAny, kOfSingleGpus };

  World(uint64_t seed, bool faults, bool by_attained = false, Guarantees guarantees = Guarantees::kNone)
      : prng_(seed), faults_(faults), guarantees_(guarantees) {
    if (by_attained) {
      engine_.apply(Configure{.config = {.feature_level = kFeatureLevel,
                                         .policy = {.job_order = "least_attained",
                                                    .attained_levels = {60, 400, 2000},
                                                    .overtaking = minutes(20),
                                                    .preempt_by_attained = true}}});
    }
    const uint64_t nodes = 2 + prng_.below(4);
    for (uint64_t i = 0; i < nodes; ++i) {
      const int gpus = i == 0 ? 8 : static_cast<int>(prng_.between(1, 8));
      engine_.add_node("n" + std::to_string(i), {.gpus = gpus, .cpu_milli = 16'000});
      gpus_ += gpus;
    }
    if (guarantees != Guarantees::kNone) add_family();
    for (int i = 0; i < 5 && guarantees == Guarantees::kNone; ++i) {
      tenants_.push_back(tenant(engine_, "t" + std::to_string(i), static_cast<int32_t>(prng_.below(4)) * 100,
                                prng_.chance(700), prng_.chance(700)));
    }
  }

  /// Runs so many rounds with arrivals, then until all is quiet.
  void run(int rounds) {
    for (int i = 0; i < rounds && !::testing::Test::HasFailure(); ++i) {
      if (prng_.chance(500)) submit();
      round();
    }
    faults_ = false;
    arrivals_over_ = true;
    for (int i = 0; engine_.state().finished.size() < submitted_; ++i) {
      ASSERT_LT(i, 20'000) << "no end";
      if (::testing::Test::HasFailure()) return;
      round();
    }
    EXPECT_TRUE(engine_.state().promises.empty());
    EXPECT_EQ(kept_ + broken_, promised_);
    for (const TenantId id : tenants_) EXPECT_EQ(engine_.tenant(id).usage, Amount{});
    for (const Node& node : engine_.state().nodes) EXPECT_EQ(node.cpu_milli_used, 0);
  }
  uint64_t promised() const { return promised_; }
  uint64_t reclaimed() const { return reclaimed_; }
  uint64_t kept() const { return kept_; }
  uint64_t broken() const { return broken_; }

 private:
  bool single() const { return guarantees_ == Guarantees::kOfSingleGpus; }
  /// Three roots and the two children of one of them; what the roots are guaranteed is there.
  void add_family() {
    const auto add = [&](const char* name, int64_t gpus, int64_t cpus, TenantId parent) {
      CreateTenant command{.name = name, .parent = parent};
      command.priority_tier = static_cast<int32_t>(prng_.below(4)) * 100;
      command.allow_preemption = prng_.chance(500);
      command.can_preempt_others = prng_.chance(500);
      command.anonymous = prng_.chance(200);
      command.guarantee.gpus = gpus;
      if (!single()) command.guarantee.cpu_milli = cpus * 1000;
      tenants_.push_back(TenantId{engine_.apply(command).first_id});
      return tenants_.back();
    };
    if (!single() && prng_.chance(500)) {
      EngineConfig config = engine_.state().config;
      config.pools = {.online_milli = prng_.between(1, 700), .batch_milli = 300, .lend = true};
      engine_.apply(Configure{.config = config});
    }
    add("none", 0, 0, {});
    const int64_t first = prng_.between(1, gpus_ / 2);
    add("first", first, prng_.between(0, 8), {});
    const int64_t second = prng_.between(2, gpus_ - first);
    const int64_t cpus = prng_.between(2, 8);
    const TenantId parent = add("second", second, cpus, {});
    const int64_t child = prng_.between(1, second);
    add("child", child, prng_.between(0, cpus - 1), parent);
    add("other-child", prng_.between(0, second - child), 1, parent);
  }
  void submit() {
    if (single()) {
      engine_.submit({.gpus = 1,
                      .priority = static_cast<int32_t>(prng_.between(0, 5) * 20),
                      .tenant = tenants_[prng_.below(tenants_.size())]});
      ++submitted_;
      return;
    }
    engine_.submit({.gpus = static_cast<int32_t>(prng_.between(0, 4)),
                    .cpu_milli = static_cast<int32_t>(prng_.between(0, 4) * 1000),
                    .priority = static_cast<int32_t>(prng_.between(0, 5) * 20),
                    .tenant = tenants_[prng_.below(tenants_.size())],
                    .max_runtime = prng_.chance(300) ? seconds(prng_.between(20, 4000)) : Duration{},
                    .work = prng_.chance(500) ? WorkClass::kOnline : WorkClass::kBatch});
    ++submitted_;
  }
  void apply(const Command& command) {
    engine_.apply(command);
    for (const Event& event : engine_.events()) {
      const auto* over = std::get_if<PromiseEnded>(&event);
      if (over == nullptr) continue;
      (over->why == PromiseEnd::kPlaced ? kept_ : broken_) += 1;
      if (over->why == PromiseEnd::kPlaced) continue;
      const bool cancelled =
          std::holds_alternative<CancelJob>(command) && over->why == PromiseEnd::kNotWaiting;
      const bool faulty = faults_ && (over->why == PromiseEnd::kNode || over->why == PromiseEnd::kDevice);
      EXPECT_TRUE(cancelled || faulty) << "a promise was broken: " << to_string(over->why);
    }
  }
  void round() {
    engine_.set_now(engine_.now() + milliseconds(prng_.between(1, 20'000)));
    while (engine_.state().next_due() <= engine_.now()) apply(AdvanceTime{});
    plan();
    std::vector<Attempt> attempts;
    for (const auto& [key, attempt] : engine_.state().attempts) attempts.push_back(attempt);
    for (const Attempt& attempt : attempts) attend(attempt);
    for (const Node& node : engine_.state().nodes) {
      for (uint32_t i = 0; i < node.devices.size(); ++i) {
        if (node.devices[i].state == DeviceState::kDraining && prng_.chance(600))
          apply(DeviceReleased{.node = node.id, .device = i, .generation = node.devices[i].generation});
      }
    }
    if (!arrivals_over_ && prng_.chance(20)) {
      const JobId any{prng_.below(engine_.state().last.sequence) + 1};
      if (engine_.state().jobs.find(any) != nullptr) apply(CancelJob{.job = any});
    }
    if (faults_ && prng_.chance(60)) fault();
    if (!faults_ && arrivals_over_) heal();
    for (const Node& node : engine_.state().nodes) {
      if (node.state != NodeState::kReady && (!faults_ || prng_.chance(100)))
        apply(NodeLeaseBack{.node = node.id});
    }
  }
  void attend(const Attempt& attempt) {
    const AttemptKey key = attempt.key();
    const NodeId node = attempt.members[0].node;
    if (attempt.stop != StopReason::kNone) {
      if (prng_.chance(500))
        apply(AttemptEnded{.job = key.job,
                           .attempt = key.attempt,
                           .node = node,
                           .outcome = {.cause = EndCause::kStopped, .detail = {}}});
      return;
    }
    if (attempt.members[0].state == MemberState::kPlaced) {
      if (prng_.chance(800)) apply(AttemptStarted{.job = key.job, .attempt = key.attempt, .node = node});
    } else if (prng_.chance(arrivals_over_ ? 40 : 12)) {
      apply(
          AttemptEnded{.job = key.job, .attempt = key.attempt, .node = node, .outcome = testing::exited(0)});
    } else if (prng_.chance(20)) {
      apply(CheckpointSaved{.job = key.job, .attempt = key.attempt, .node = node, .age = seconds(1)});
    }
  }
  void fault() {
    const Node& node = engine_.state().nodes[prng_.below(engine_.state().nodes.size())];
    if (prng_.chance(500) || node.devices.empty()) return apply(NodeLeaseLost{.node = node.id});
    const auto device = static_cast<uint32_t>(prng_.below(node.devices.size()));
    const bool fit = node.devices[device].condition == DeviceCondition::kOk;
    apply(SetDeviceCondition{.node = node.id,
                             .device = device,
                             .condition = fit ? DeviceCondition::kUnhealthy : DeviceCondition::kOk,
                             .detail = {}});
  }
  void heal() {
    for (const Node& node : engine_.state().nodes) {
      for (uint32_t i = 0; i < node.devices.size(); ++i) {
        if (node.devices[i].condition != DeviceCondition::kOk)
          apply(SetDeviceCondition{
              .node = node.id, .device = i, .condition = DeviceCondition::kOk, .detail = {}});
      }
    }
  }
  /// A cycle, group after group: every one is taken, and every preemption lowers the potential.
  void plan() {
    for (int slice = 0; slice < 100; ++slice) {
      const Planner::Slice planned = engine_.planner().plan(engine_.state(), engine_.now());
      for (const PlanGroup& group : planned.plan.groups) {
        const Potential before = policy::potential_of(engine_.state());
        check_victims(group);
        apply(CommitPlan{.groups = {group}});
        EXPECT_FALSE(engine_.events().empty()) << "the planner and decide disagree";
        const Potential after = policy::potential_of(engine_.state());
        // A promised job counted as placed since its promise.
        const bool had_promise = engine_.count_events<PromiseEnded>() > 0;
        if (!had_promise) {
          EXPECT_TRUE(policy::potential_less(after, before));
        }
        if (!group.preemptions.empty()) ++promised_;
        if (group.reclaims) check_guarantees(group);
      }
      if (!planned.plan.groups.empty()) engine_.planner().plan_applied(engine_.state());
      if (planned.more) continue;
      if (single()) check_owed();
      return;
    }
    ADD_FAILURE() << "a cycle without end";
  }
  bool is_below(TenantId tenant, TenantId ancestor) const {
    for (; tenant.valid(); tenant = engine_.tenant(tenant).parent) {
      if (tenant == ancestor) return true;
    }
    return false;
  }
  /// Amounts that the tenant and its children hold and keep, counted from the attempts.
  Amount held(TenantId tenant) const {
    const State& state = engine_.state();
    Amount sum;
    for (const auto& [key, attempt] : state.attempts) {
      const Job& job = *state.jobs.find(attempt.job);
      if (!attempt.abandoned && job.state != JobState::kPreempted && is_below(job.tenant, tenant))
        sum.add(total_of(state.class_of(job).parts));
    }
    for (const auto& [id, promise] : state.promises) {
      if (is_below(promise.tenant, tenant)) sum.add(promise.amount);
    }
    return sum;
  }
  /// Somebody's guarantee covers the job, and whoever gave has what it is guaranteed.
  void check_guarantees(const PlanGroup& group) {
    ++reclaimed_;
    const State& state = engine_.state();
    const Job& job = *state.jobs.find(group.job);
    const bool by_gpus = total_of(state.class_of(job).parts).gpus > 0;
    TenantId owner;
    for (TenantId at = job.tenant; at.valid() && !owner.valid(); at = engine_.tenant(at).parent) {
      const Amount& guarantee = engine_.tenant(at).guarantee;
      if (by_gpus && held(at).gpus <= guarantee.gpus && held(at).cpu_milli <= guarantee.cpu_milli) owner = at;
      if (!by_gpus && held(at).cpu_milli <= guarantee.cpu_milli) owner = at;
      if (by_gpus && held(at).gpus <= guarantee.gpus && guarantee.cpu_milli == 0) owner = at;
    }
    EXPECT_TRUE(owner.valid() || total_of(state.class_of(job).parts).cpu_milli == 0);
    for (const Preemption& preemption : group.preemptions) {
      const Job& victim = *state.jobs.find(preemption.job);
      const bool gpus = total_of(state.class_of(victim).parts).gpus > 0;
      for (TenantId at = victim.tenant; at.valid() && !is_below(job.tenant, at);
           at = engine_.tenant(at).parent) {
        if (gpus) {
          EXPECT_GE(held(at).gpus, engine_.tenant(at).guarantee.gpus);
        }
        if (!gpus) {
          EXPECT_GE(held(at).cpu_milli, engine_.tenant(at).guarantee.cpu_milli);
        }
      }
    }
  }
  /// A job of one GPU that a guarantee covers waits no longer than the planner's patience and a round, unless
  /// something that is on its way back is enough.
  void check_owed() {
    const State& state = engine_.state();
    const bool on_its_way = std::any_of(state.nodes.begin(), state.nodes.end(), [](const Node& node) {
      return std::any_of(node.devices.begin(), node.devices.end(), [](const Device& device) {
        return device.state != DeviceState::kHeld && !device.promised_to.valid();
      });
    });
    const bool ending = std::any_of(state.attempts.begin(), state.attempts.end(), [&](const auto& entry) {
      return entry.second.stop != StopReason::kNone && entry.second.stop != StopReason::kPreempt;
    });
    std::map<JobId, Time> owed;
    state.jobs.for_each([&](const Job& job) {
      if (on_its_way || ending || !job.is_queued()) return true;
      if (guarantees::covering(state, job.tenant, Amount{.gpus = 1, .jobs = 1}, {}) == nullptr) return true;
      const auto before = owed_.find(job.id);
      owed.emplace(job.id, before == owed_.end() ? engine_.now() : before->second);
      EXPECT_LE((engine_.now() - owed.at(job.id)).ms(), 31'000);
      return true;
    });
    owed_ = std::move(owed);
  }
  void check_victims(const PlanGroup& group) {
    const State& state = engine_.state();
    const Job& job = *state.jobs.find(group.job);
    for (const Preemption& victim : group.preemptions) {
      const Job& lesser = *state.jobs.find(victim.job);
      if (group.asked_at.valid()) continue;
      EXPECT_LT(policy::standing_of(state, lesser, engine_.now()),
                policy::standing_of(state, job, engine_.now()));
      EXPECT_LE(policy::effective_priority(state, lesser), policy::effective_priority(state, job));
      EXPECT_TRUE(state.find_tenant(lesser.tenant)->allow_preemption);
      EXPECT_TRUE(state.find_tenant(job.tenant)->can_preempt_others);
      EXPECT_TRUE(state.find_tenant(lesser.tenant)->anonymous || !state.find_tenant(job.tenant)->anonymous);
      EXPECT_LT(lesser.extras->preempt_count, 3u);
      EXPECT_GE(engine_.now(), lesser.started_at + seconds(60));
    }
  }

  Prng prng_;
  bool faults_;
  Guarantees guarantees_;
  int64_t gpus_ = 0;
  std::map<JobId, Time> owed_;  ///< Jobs of one GPU that are guaranteed it, and since when they wait for it.
  uint64_t reclaimed_ = 0;
  bool arrivals_over_ = false;
  TestEngine engine_;
  std::vector<TenantId> tenants_;
  std::size_t submitted_ = 0;
  uint64_t promised_ = 0;
  uint64_t kept_ = 0;
  uint64_t broken_ = 0;
};

class RandomPreemptions : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomPreemptions, EachLowersThePotentialAndItsJobStarts) {
  World world(GetParam(), false);
  world.run(600);
  EXPECT_GT(world.promised(), 0u);
}

TEST_P(RandomPreemptions, ByAttainedServiceEachLowersThePotentialToo) {
  World world(GetParam() + 200, false, true);
  world.run(600);
  EXPECT_GT(world.promised(), 0u);
}

TEST_P(RandomPreemptions, ReclaimsLowerThePotentialAndLeaveEverybodyItsGuarantee) {
  World world(GetParam() + 200, false, false, World::Guarantees::kAny);
  world.run(250);
  EXPECT_GT(world.promised(), 0u);
}

TEST_P(RandomPreemptions, AGuaranteeOfSingleGpusIsGivenBackInTime) {
  World world(GetParam() + 300, false, false, World::Guarantees::kOfSingleGpus);
  world.run(250);
  EXPECT_GT(world.reclaimed(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPreemptions, ::testing::Range<uint64_t>(1, 13));

/// Promises of all worlds with faults: in one of them there may be none.
struct Promises {
  uint64_t kept = 0, broken = 0, reclaimed = 0;
  void add(World&& world, int rounds) {
    world.run(rounds);
    kept += world.kept();
    broken += world.broken();
    reclaimed += world.reclaimed();
  }
};

TEST(FaultyPreemptions, FaultsBreakPromisesAndNothingElse) {
  Promises all;
  for (uint64_t seed = 101; seed <= 112; ++seed) all.add(World(seed, true), 600);
  EXPECT_GT(all.kept, 0u);
  EXPECT_GT(all.broken, 0u);
}

TEST(FaultyPreemptions, FaultsBreakPromisesOfGuaranteesToo) {
  Promises all;
  for (uint64_t seed = 401; seed <= 412; ++seed)
    all.add(World(seed, true, false, World::Guarantees::kAny), 250);
  EXPECT_GT(all.kept, 0u);
  EXPECT_GT(all.broken, 0u);
  EXPECT_GT(all.reclaimed, 0u);
}

}  // namespace
}  // namespace gpusched
