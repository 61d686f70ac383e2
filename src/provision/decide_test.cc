#include "provision/decide.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/prng.h"
#include "engine/testing/test_engine.h"

namespace gpusched::provision {
namespace {

using testing::Shape;
using testing::TestEngine;
using testing::Want;

constexpr Time kNow{1'000'000'000'000'000};

Pool pool_of(const std::string& name, int32_t gpus, int64_t maximum, int64_t price_milli = 1'000) {
  return {.name = name,
          .shape = {.cpu_milli = 64'000,
                    .memory_mb = 512'000,
                    .gpus = gpus,
                    .gpu_model = "NVIDIA A100-SXM4-80GB",
                    .gpu_memory_mb = 81'920},
          .maximum = maximum,
          .price_milli = price_milli};
}
PoolNow now_of(Pool pool) { return {.pool = std::move(pool), .boot = minutes(4)}; }

Part part_of(int32_t gpus, int32_t members = 1) { return {.member_count = members, .gpu_count = gpus}; }
Demand demand_for(int32_t gpus, int64_t jobs, int32_t members = 1) {
  return {.job_class = 7, .parts = {part_of(gpus, members)}, .jobs = jobs};
}
Machine starting(const std::string& name, const std::string& pool, Duration ago = minutes(1)) {
  return {.name = name, .pool = pool, .asked_at = kNow - ago};
}
/// A machine whose node is in service and idle since so long.
Machine idle(const Pool& pool, const std::string& name, Duration since) {
  Machine machine = starting(name, pool.name, hours(1));
  machine.node = MachineNode{.id = NodeId{9}, .in_service = true, .quiet = true};
  machine.node->capacity.emplace(node_of(pool, name), classes_of(pool));
  machine.quiet_since = kNow - since;
  return machine;
}
Machine busy(const Pool& pool, const std::string& name) {
  Machine machine = starting(name, pool.name, hours(1));
  machine.node = MachineNode{.id = NodeId{9}, .in_service = true, .quiet = false};
  return machine;
}
Machine drained(const Pool& pool, const std::string& name, bool by_us) {
  Machine machine = idle(pool, name, minutes(1));
  machine.node->in_service = false;
  machine.node->drained = true;
  machine.node->drained_by_us = by_us;
  return machine;
}

TEST(ScaleOut, AsksForAsManyMachinesAsTheWaitingJobsFill) {
  struct Row {
    const char* what;
    std::vector<Demand> demand;
    int64_t maximum;
    std::size_t machines;
  };
  const Row rows[] = {
      {"nothing waits", {}, 10, 0},
      {"one job", {demand_for(1, 1)}, 10, 1},
      {"jobs that share a machine", {demand_for(1, 4)}, 10, 1},
      {"one job more than fits", {demand_for(1, 5)}, 10, 2},
      {"jobs of two sizes", {demand_for(3, 2), demand_for(1, 2)}, 10, 2},
      {"a gang", {demand_for(4, 1, 3)}, 10, 3},
      {"a gang that the maximum does not allow whole", {demand_for(4, 1, 3)}, 2, 0},
      {"a gang that is not allowed, and a job behind it", {demand_for(4, 1, 3), demand_for(1, 1)}, 2, 1},
      {"more jobs than the maximum", {demand_for(4, 30)}, 3, 3},
      {"a job larger than any machine", {demand_for(5, 1)}, 10, 0},
      {"a part of a GPU", {{.parts = {{.gpu_milli = 500}}, .jobs = 9}}, 10, 2},
      {"a job without GPUs", {{.parts = {{.cpu_milli = 40'000}}, .jobs = 2}}, 10, 2},
      {"a MIG slice", {{.parts = {{.gpu_milli = 500, .mig_profile = "1g.10gb"}}, .jobs = 1}}, 10, 0},
      {"a job for a reservation", {{.parts = {{.gpu_count = 1, .booking = 4}}, .jobs = 1}}, 10, 0},
  };
  for (const Row& row : rows) {
    const Decisions decided =
        decide({.now = kNow, .pools = {now_of(pool_of("burst", 4, row.maximum))}, .demand = row.demand});
    EXPECT_EQ(decided.create.size(), row.machines) << row.what;
  }
}

TEST(ScaleOut, CountsWhatIsComingAndWhatIsIdle) {
  const Pool pool = pool_of("burst", 4, 10);
  const auto asked = [&](std::vector<Machine> machines, int64_t jobs) {
    return decide({.now = kNow,
                   .pools = {now_of(pool)},
                   .machines = std::move(machines),
                   .demand = {demand_for(4, jobs)}})
        .create.size();
  };
  EXPECT_EQ(asked({starting("burst-1", "burst")}, 1), 0u);
  EXPECT_EQ(asked({starting("burst-1", "burst")}, 2), 1u);
  EXPECT_EQ(asked({idle(pool, "burst-1", seconds(1))}, 1), 0u);
  EXPECT_EQ(asked({busy(pool, "burst-1")}, 1), 1u);
  Machine ending = starting("burst-1", "burst");
  ending.ending = true;
  EXPECT_EQ(asked({ending}, 1), 1u);  // Its resources are gone, though it still counts for the maximum.
}

TEST(ScaleOut, TakesTheCheapestPoolThatMayHaveAnotherMachine) {
  Pool cheap = pool_of("cheap", 2, 1, 500);
  Pool dear = pool_of("dear", 8, 5, 9'000);
  const auto asked = [&](std::vector<Demand> demand, bool cheap_is_open = true) {
    PoolNow first = now_of(cheap);
    first.open = cheap_is_open;
    return decide({.now = kNow, .pools = {now_of(dear), first}, .demand = std::move(demand)}).create;
  };
  EXPECT_EQ(asked({demand_for(2, 1)}), std::vector<std::string>{"cheap"});
  EXPECT_EQ(asked({demand_for(4, 1)}), std::vector<std::string>{"dear"});
  EXPECT_EQ(asked({demand_for(2, 2)}), (std::vector<std::string>{"dear", "cheap"}));
  EXPECT_EQ(asked({demand_for(2, 1)}, false), std::vector<std::string>{"dear"});
}

TEST(ScaleOut, SaysWhatEachClassMayExpect) {
  Pool pool = pool_of("burst", 4, 1);
  const auto outlook = [](const Decisions& decided) {
    return decided.outlooks.size() == 1 ? decided.outlooks.front() : ClassOutlook{};
  };
  const ClassOutlook coming = outlook(decide({.now = kNow,
                                              .pools = {now_of(pool)},
                                              .machines = {starting("burst-1", "burst")},
                                              .demand = {demand_for(4, 2)}}));
  EXPECT_EQ(coming.job_class, 7u);
  EXPECT_EQ(coming.outlook, Outlook::kStarting);
  EXPECT_EQ(coming.pool, "burst");
  EXPECT_EQ(coming.ready_at, kNow + minutes(3));
  EXPECT_EQ(outlook(decide({.now = kNow,
                            .pools = {now_of(pool)},
                            .machines = {busy(pool, "burst-1")},
                            .demand = {demand_for(4, 1)}}))
                .outlook,
            Outlook::kAtMaximum);
  pool.budget_milli = 999;
  EXPECT_EQ(outlook(decide({.now = kNow, .pools = {now_of(pool)}, .demand = {demand_for(4, 1)}})).outlook,
            Outlook::kOverBudget);
  PoolNow closed = now_of(pool_of("burst", 4, 1));
  closed.open = false;
  EXPECT_EQ(outlook(decide({.now = kNow, .pools = {closed}, .demand = {demand_for(4, 1)}})).outlook,
            Outlook::kUnavailable);
  EXPECT_TRUE(decide({.now = kNow, .pools = {now_of(pool)}, .demand = {demand_for(5, 1)}}).outlooks.empty());
}

TEST(ScaleOut, LaysMembersOfAGangOnFreeNodesToo) {
  const Pool pool = pool_of("burst", 4, 10);
  const auto asked = [&](Demand demand) {
    return decide({.now = kNow,
                   .pools = {now_of(pool)},
                   .demand = {std::move(demand)},
                   .free = {Capacity(node_of(pool, "other"), classes_of(pool))}})
        .create.size();
  };
  EXPECT_EQ(asked(demand_for(4, 1, 3)), 2u);
  EXPECT_EQ(asked(demand_for(4, 1)), 1u);  // The planner says that no node has room for it.
}

TEST(ScaleOut, KeepsTheMinimumWithoutDemand) {
  Pool pool = pool_of("burst", 4, 3);
  pool.minimum = 2;
  EXPECT_EQ(decide({.now = kNow, .pools = {now_of(pool)}}).create.size(), 2u);
  EXPECT_EQ(decide({.now = kNow, .pools = {now_of(pool)}, .machines = {starting("burst-1", "burst")}})
                .create.size(),
            1u);
  EXPECT_EQ(decide({.now = kNow, .pools = {now_of(pool)}, .machines = {drained(pool, "burst-1", false)}})
                .create.size(),
            2u);
}

TEST(ScaleIn, DrainsWhatWasIdleForThePoolsTimeAndEndsItWhenItIsQuiet) {
  Pool pool = pool_of("burst", 4, 10);
  pool.idle_after = minutes(5);
  const auto decided = [&](Machine machine, std::vector<Demand> demand = {}) {
    return decide({.now = kNow,
                   .pools = {now_of(pool)},
                   .machines = {std::move(machine)},
                   .demand = std::move(demand)});
  };
  EXPECT_TRUE(decided(idle(pool, "burst-1", minutes(4))).drain.empty());
  EXPECT_EQ(decided(idle(pool, "burst-1", minutes(5))).drain, std::vector<std::string>{"burst-1"});
  EXPECT_TRUE(decided(idle(pool, "burst-1", minutes(5)), {demand_for(1, 1)}).drain.empty());
  EXPECT_TRUE(decided(busy(pool, "burst-1")).drain.empty());
  Machine kept = idle(pool, "burst-1", hours(5));
  kept.node->kept = true;
  EXPECT_TRUE(decided(kept).drain.empty());

  ASSERT_EQ(decided(drained(pool, "burst-1", true)).end.size(), 1u);
  EXPECT_TRUE(decided(drained(pool, "burst-1", true)).end.front().of_node);
  EXPECT_EQ(decided(drained(pool, "burst-1", true), {demand_for(1, 1)}).resume,
            std::vector<std::string>{"burst-1"});
  EXPECT_TRUE(decided(drained(pool, "burst-1", true), {demand_for(1, 1)}).create.empty());
  Machine working = drained(pool, "burst-1", true);
  working.node->quiet = false;
  working.node->capacity.reset();
  EXPECT_TRUE(decided(working).end.empty());
  Machine silent = drained(pool, "burst-1", true);
  silent.node->silent = true;
  EXPECT_TRUE(decided(silent).end.empty());
  // An operator's drain gives the machine back too, but only after the pool's time.
  Machine by_operator = drained(pool, "burst-1", false);
  EXPECT_TRUE(decided(by_operator).end.empty());
  by_operator.quiet_since = kNow - minutes(5);
  EXPECT_EQ(decided(by_operator).end.size(), 1u);
}

TEST(ScaleIn, KeepsTheMinimumAndDrainsTheLongestIdleFirst) {
  Pool pool = pool_of("burst", 4, 10);
  pool.minimum = 1;
  pool.idle_after = minutes(5);
  const Decisions decided =
      decide({.now = kNow,
              .pools = {now_of(pool)},
              .machines = {idle(pool, "burst-1", minutes(6)), idle(pool, "burst-2", minutes(9))}});
  EXPECT_EQ(decided.drain, std::vector<std::string>{"burst-2"});
  EXPECT_TRUE(decided.create.empty());
}

TEST(ScaleIn, EndsAMachineWhoseNodeDoesNotCome) {
  const Pool pool = pool_of("burst", 4, 10);
  const auto ended = [&](Duration ago) {
    return decide({.now = kNow, .pools = {now_of(pool)}, .machines = {starting("burst-1", "burst", ago)}})
        .end;
  };
  EXPECT_TRUE(ended(pool.boot_limit - seconds(1)).empty());
  ASSERT_EQ(ended(pool.boot_limit).size(), 1u);
  EXPECT_FALSE(ended(pool.boot_limit).front().of_node);
}

TEST(Demand, IsWhatMachinesCouldLiftWithinTheTenantsLimits) {
  TestEngine engine;
  const auto demand = [&] {
    engine.cycle();
    std::vector<WaitReason> reasons;
    for (uint32_t i = 0; i < engine.state().classes.size(); ++i)
      reasons.push_back(engine.planner().reason(i));
    return demand_of(engine.state(), reasons);
  };
  EXPECT_TRUE(demand().empty());
  const JobId job = engine.submit_gpus(4);
  ASSERT_EQ(demand().size(), 1u);  // No node at all.
  EXPECT_EQ(demand().front().job_class, engine.job(job).job_class);
  EXPECT_EQ(demand().front().jobs, 1);
  engine.add_node("n1", {.gpus = 4});
  EXPECT_TRUE(demand().empty());  // It was placed.
  engine.submit_gpus(4);
  engine.submit_gpus(4);
  ASSERT_EQ(demand().size(), 1u);  // All GPUs are busy.
  EXPECT_EQ(demand().front().jobs, 2);

  Limits limits;
  limits.set(Resource::kGpus, 6);
  const TenantId small = engine.add_tenant("small", {}, limits);
  for (int i = 0; i < 5; ++i) engine.submit({.gpus = 2, .tenant = small});
  const std::vector<Demand> both = demand();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].jobs, 3);  // Six of its ten GPUs.
}

TEST(Demand, OfJobsAtATenantsLimitIsNone) {
  TestEngine engine;
  engine.add_node("n1", {.gpus = 4});
  Limits limits;
  limits.set(Resource::kGpus, 2);
  const TenantId small = engine.add_tenant("small", {}, limits);
  engine.run({.gpus = 2, .tenant = small});
  const JobId job = engine.submit({.gpus = 2, .tenant = small});
  engine.cycle();
  std::vector<WaitReason> reasons(engine.job(job).job_class + 1);
  reasons.back() = engine.planner().reason(engine.job(job).job_class);
  EXPECT_EQ(reasons.back().code, WaitCode::kQuota);
  EXPECT_TRUE(demand_of(engine.state(), reasons).empty());
}

TEST(Demand, OfAHeldJobOrAPauseIsNone) {
  TestEngine engine;
  engine.submit({.gpus = 1, .held = true});
  engine.cycle();
  EXPECT_TRUE(demand_of(engine.state(), {engine.planner().reason(0), engine.planner().reason(1)}).empty());
}

TEST(MachineNode, IsQuietOnlyWithoutWorkPromisesAndDrainingDevices) {
  TestEngine engine;
  const NodeId node = engine.add_node("burst-1", {.gpus = 2});
  EXPECT_FALSE(machine_node(engine.state(), "burst-2").has_value());
  ASSERT_TRUE(machine_node(engine.state(), "burst-1").has_value());
  EXPECT_TRUE(machine_node(engine.state(), "burst-1")->quiet);
  EXPECT_TRUE(machine_node(engine.state(), "burst-1")->in_service);
  const JobId job = engine.run({.gpus = 1});
  EXPECT_FALSE(machine_node(engine.state(), "burst-1")->quiet);
  engine.apply(SetNodeAvailability{
      .node = node, .to = Availability::kDraining, .by = std::string(kDrainedBy), .reason = "idle"});
  EXPECT_TRUE(machine_node(engine.state(), "burst-1")->drained_by_us);
  engine.ended(job);
  EXPECT_FALSE(machine_node(engine.state(), "burst-1")->quiet);  // Its GPU is not seen empty yet.
  engine.release_all();
  EXPECT_TRUE(machine_node(engine.state(), "burst-1")->quiet);
}

/// Machines and jobs at random: whatever comes, the promises hold.
TEST(Decide, NeverPassesMaximumOrBudgetAndNeverEndsAMachineWithWork) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Prng random(seed);
    Situation situation{.now = kNow};
    const int64_t pools = 1 + static_cast<int64_t>(random.below(3));
    for (int64_t i = 0; i < pools; ++i) {
      Pool pool = pool_of("p" + std::to_string(i), 1 + static_cast<int32_t>(random.below(8)),
                          static_cast<int64_t>(random.below(12)), static_cast<int64_t>(random.below(5'000)));
      pool.minimum = std::min(pool.maximum, static_cast<int64_t>(random.below(4)));
      pool.budget_milli = random.below(2) == 0 ? 0 : static_cast<int64_t>(random.below(30'000));
      pool.idle_after = minutes(static_cast<int64_t>(random.below(10)));
      PoolNow now = now_of(pool);
      now.open = random.below(5) != 0;
      const int64_t machines = static_cast<int64_t>(random.below(10));
      for (int64_t k = 0; k < machines; ++k) {
        const std::string name = pool.name + "-" + std::to_string(k);
        const uint64_t kind = random.below(6);
        Machine machine = kind == 0
                              ? starting(name, pool.name, minutes(static_cast<int64_t>(random.below(30))))
                          : kind == 1 ? busy(pool, name)
                          : kind == 2 ? drained(pool, name, random.below(2) == 0)
                                      : idle(pool, name, minutes(static_cast<int64_t>(random.below(20))));
        if (machine.node && random.below(3) == 0) {
          machine.node->quiet = false;
          machine.node->capacity.reset();
        }
        if (machine.node && random.below(5) == 0) machine.node->silent = true;
        machine.ending = random.below(6) == 0;
        situation.machines.push_back(std::move(machine));
      }
      situation.pools.push_back(std::move(now));
    }
    for (uint64_t i = random.below(6); i > 0; --i) {
      situation.demand.push_back(demand_for(static_cast<int32_t>(random.below(9)),
                                            1 + static_cast<int64_t>(random.below(20)),
                                            1 + static_cast<int32_t>(random.below(5))));
    }
    const Decisions decided = decide(situation);
    for (const PoolNow& pool : situation.pools) {
      const auto is_of = [&](const Machine& machine) { return machine.pool == pool.pool.name; };
      const int64_t before = std::ranges::count_if(situation.machines, is_of);
      const int64_t asked = std::ranges::count(decided.create, pool.pool.name);
      if (asked == 0) continue;
      EXPECT_TRUE(pool.open) << seed;
      EXPECT_LE(before + asked, pool.pool.maximum) << seed;
      if (pool.pool.budget_milli > 0) {
        EXPECT_LE((before + asked) * pool.pool.price_milli, pool.pool.budget_milli) << seed;
      }
    }
    std::map<std::string, const Machine*> by_name;
    for (const Machine& machine : situation.machines) by_name[machine.name] = &machine;
    std::set<std::string> touched;
    for (const Ending& ending : decided.end) {
      const Machine& machine = *by_name.at(ending.machine);
      EXPECT_TRUE(touched.insert(ending.machine).second) << seed;
      EXPECT_FALSE(machine.ending) << seed;
      EXPECT_EQ(ending.of_node, machine.node.has_value()) << seed;
      if (!machine.node) continue;
      EXPECT_TRUE(machine.node->quiet && machine.node->drained && !machine.node->silent) << seed;
    }
    for (const std::string& name : decided.drain) {
      const Machine& machine = *by_name.at(name);
      EXPECT_TRUE(touched.insert(name).second) << seed;
      EXPECT_TRUE(machine.node && machine.node->quiet && machine.node->in_service) << seed;
    }
    for (const std::string& name : decided.resume) EXPECT_TRUE(touched.insert(name).second) << seed;
  }
}

TEST(Pool, ItsMachinesAreNoExternalNodes) {
  Pool pool = pool_of("burst", 1, 1);
  pool.shape.features = {"container", "external"};
  const Node node = node_of(pool, "burst-1");
  EXPECT_EQ(node.feature_bits, kFeatureContainer);
  Part external = part_of(1);
  external.features = kFeatureExternal;
  EXPECT_FALSE(could_hold(node, classes_of(pool), external));
  EXPECT_TRUE(could_hold(node, classes_of(pool), part_of(1)));
}

}  // namespace
}  // namespace gpusched::provision
