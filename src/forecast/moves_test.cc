#include "forecast/moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

#include "base/limits.h"
#include "base/prng.h"
#include "engine/policy/victims.h"
#include "engine/testing/test_engine.h"
#include "forecast/testing/test_world.h"

namespace gpusched::forecast {
namespace {

using gpusched::testing::TestEngine;
using gpusched::testing::Want;
using gpusched::testing::world_of;

MovePlan moves_in(const World& world, const MoveOptions& options = {}) {
  Work work{.left = limits::kMoveWorkMax};
  return plan_moves(world, options, work);
}

/// `count` nodes of `gpus` with one job on each that takes `used`, of a tenant that lets its jobs be ended.
struct Scattered {
  TestEngine engine;
  TenantId batch{engine.apply(CreateTenant{.name = "batch", .allow_preemption = true}).first_id};
  std::vector<NodeId> nodes;
  std::vector<JobId> jobs;

  Scattered(int count, int gpus, int used) {
    for (int i = 0; i < count; ++i) {
      nodes.push_back(engine.add_node("n" + std::to_string(i), {.gpus = gpus}));
      const JobId filler = engine.run({.gpus = gpus - used});
      jobs.push_back(engine.run({.gpus = used, .tenant = batch}));
      fillers.push_back(filler);
    }
    for (const JobId filler : fillers) engine.finish(filler);
    engine.advance(minutes(2));
  }
  std::vector<JobId> fillers;
};

TEST(Moves, AProposalSaysWhatItCostsAndWhatItGains) {
  Scattered cluster(2, 8, 4);
  const JobId big = cluster.engine.submit({.gpus = 8});
  cluster.engine.cycle();
  const MovePlan plan = moves_in(world_of(cluster.engine));
  ASSERT_EQ(plan.proposals.size(), 1U);
  const MoveProposal& found = plan.proposals.front();
  EXPECT_EQ(found.job(), big);
  EXPECT_EQ(found.starts, std::vector<JobId>{big});
  EXPECT_EQ(found.gpus_started, 8);
  ASSERT_EQ(found.moves.size(), 1U);
  EXPECT_EQ(found.moves[0].job, cluster.jobs[0]);
  EXPECT_EQ(found.price.lost_gpu_ms, 4 * minutes(2).ms());
  EXPECT_FALSE(found.moves[0].saved);
  EXPECT_EQ(plan.gpus_free, 8);
  // A fifth of what is asked for is of eight GPUs, which eight free ones on two nodes cannot give.
  EXPECT_EQ(found.unusable_before, 1600);
  EXPECT_EQ(found.unusable_after, 0);
  EXPECT_FALSE(plan.stopped_early);
}

TEST(Moves, NobodyIsMovedForWhoMustHaveStartedBefore) {
  for (const auto& [deadline, moves] : {std::pair(seconds(15), 0U), std::pair(seconds(16), 1U)}) {
    Scattered cluster(2, 8, 4);
    cluster.engine.submit({.gpus = 8, .flow = {{.deadline_after = deadline}}});
    cluster.engine.cycle();
    const MovePlan plan = moves_in(world_of(cluster.engine));  // 10 s of grace, and 5 until GPUs are empty.
    EXPECT_EQ(plan.proposals.size(), moves);
    if (moves == 0) {
      ASSERT_FALSE(plan.unmoved.empty());
      ASSERT_FALSE(plan.unmoved.front().blockers.empty());
      EXPECT_EQ(plan.unmoved.front().blockers.front().why, MoveObstacle::kTooLate);
    }
  }
}

TEST(Moves, NothingIsProposedWhereNobodyWaitsForRoom) {
  Scattered cluster(2, 8, 2);
  EXPECT_TRUE(moves_in(world_of(cluster.engine)).proposals.empty());
  const JobId held = cluster.engine.submit({.gpus = 8, .held = true});
  cluster.engine.cycle();
  const MovePlan plan = moves_in(world_of(cluster.engine), {.only = held});
  EXPECT_TRUE(plan.proposals.empty());
}

TEST(Moves, AProposalHoldsUntilSomethingThatItNeedsChanges) {
  Scattered cluster(3, 4, 2);
  cluster.engine.submit({.gpus = 4});
  cluster.engine.cycle();
  const MovePlan plan = moves_in(world_of(cluster.engine));
  ASSERT_EQ(plan.proposals.size(), 1U);
  const MoveProposal& found = plan.proposals.front();
  EXPECT_TRUE(still_holds(world_of(cluster.engine), found, {}));
  cluster.engine.ended(found.moves[0].job);
  EXPECT_FALSE(still_holds(world_of(cluster.engine), found, {}));
}

TEST(Moves, MoreMovesThanAllowedAreNotProposed) {
  Scattered cluster(2, 4, 1);
  cluster.engine.run({.gpus = 1, .tenant = cluster.batch});
  cluster.engine.run({.gpus = 1, .tenant = cluster.batch});
  cluster.engine.advance(minutes(2));
  cluster.engine.submit({.gpus = 4});
  cluster.engine.cycle();
  const World world = world_of(cluster.engine);
  const MovePlan one = moves_in(world, {.moves_max = 1});
  const MovePlan many = moves_in(world, {.moves_max = 4});
  ASSERT_EQ(many.proposals.size(), 1U);
  EXPECT_LE(one.proposals.size(), 1U);
  for (const MoveProposal& proposal : one.proposals) EXPECT_EQ(proposal.moves.size(), 1U);
}

TEST(Moves, WithoutWorkItSaysThatItStoppedEarly) {
  Scattered cluster(4, 4, 2);
  cluster.engine.submit({.gpus = 4});
  cluster.engine.cycle();
  const World world = world_of(cluster.engine);
  Work work{.left = 3};
  const MovePlan plan = plan_moves(world, {}, work);
  EXPECT_TRUE(plan.proposals.empty());
  EXPECT_TRUE(plan.stopped_early);
}

TEST(Moves, OfManyNodesAndJobsTheCheapestAreFoundWithinTheWork) {
  TestEngine engine;
  const TenantId batch{engine.apply(CreateTenant{.name = "batch", .allow_preemption = true}).first_id};
  std::vector<JobId> jobs;
  std::vector<JobId> fillers;
  for (int node = 0; node < 40; ++node) {
    engine.add_node("n" + std::to_string(node), {.gpus = 8});
    for (int i = 0; i < 6; ++i) jobs.push_back(engine.submit({.gpus = 1, .tenant = batch}));
    const JobId filler = engine.submit({.gpus = 2});
    engine.cycle();
    for (int i = 0; i < 6; ++i) engine.started(jobs[jobs.size() - static_cast<std::size_t>(i) - 1]);
    engine.started(filler);
    engine.advance(seconds(3));
    fillers.push_back(filler);
  }
  for (const JobId filler : fillers) engine.ended(filler);
  engine.release_all();
  engine.advance(minutes(2));
  engine.submit({.gpus = 8});
  engine.cycle();
  const World world = world_of(engine);
  const MovePlan few = moves_in(world);
  ASSERT_EQ(few.unmoved.size(), 1U);
  EXPECT_TRUE(few.unmoved[0].too_many);
  const MovePlan plan = moves_in(world, {.moves_max = 6});
  ASSERT_EQ(plan.proposals.size(), 1U);
  EXPECT_FALSE(plan.stopped_early);
  // The last node's jobs have run for the shortest time.
  EXPECT_EQ(plan.proposals[0].moves[0].from, world.state().nodes.back().id);
  EXPECT_EQ(plan.proposals[0].moves.size(), 6U);
}

TEST(Moves, ByThemselvesTheyStayWithinTheirBounds) {
  Scattered cluster(2, 8, 4);
  cluster.engine.submit({.gpus = 8});
  cluster.engine.cycle();
  cluster.engine.advance(seconds(30));
  const World world = world_of(cluster.engine);
  const MovePlan plan = moves_in(world);
  ASSERT_EQ(plan.proposals.size(), 1U);
  MoveProposal found = plan.proposals.front();
  found.otherwise = {};
  const int64_t price = found.price.lost_gpu_ms / 1'000 / found.gpus_started;
  EXPECT_TRUE(is_worth_it(world, found, {.price_max = price, .patience = seconds(30)}));
  EXPECT_FALSE(is_worth_it(world, found, {.price_max = price - 1, .patience = seconds(30)}));
  EXPECT_FALSE(is_worth_it(world, found, {.price_max = price, .patience = seconds(31)}));
  found.otherwise = world.now() + minutes(1);
  EXPECT_TRUE(is_worth_it(world, found, {.price_max = price, .patience = seconds(30), .soon = minutes(1)}));
  EXPECT_FALSE(is_worth_it(world, found, {.price_max = price, .patience = seconds(30), .soon = seconds(61)}));
}

// Trying everything: every node, every set of jobs on it, every place for each of them, as `decide` says.
class Everything {
 public:
  Everything(const World& world, const MoveOptions& options, const Job& job)
      : world_(world), options_(options), job_(job) {}

  std::optional<MovePrice> lowest() {
    for (const Node& node : world_.state().nodes) {
      std::vector<const Attempt*> here;
      for (const AttemptKey& key : node.attempts)
        here.push_back(world_.state().find_attempt(key.job, key.attempt));
      for (uint64_t set = 1; set < uint64_t{1} << here.size(); ++set) {
        std::vector<const Attempt*> chosen;
        for (std::size_t i = 0; i < here.size(); ++i) {
          if (((set >> i) & 1) != 0) chosen.push_back(here[i]);
        }
        if (chosen.size() <= options_.moves_max && all_may_move(chosen)) try_set(node, chosen);
      }
    }
    return best_;
  }

 private:
  bool all_may_move(const std::vector<const Attempt*>& chosen) const {
    const State& state = world_.state();
    return std::all_of(chosen.begin(), chosen.end(), [&](const Attempt* attempt) {
      const Job* job = state.jobs.find(attempt->job);
      return attempt->started_at.valid() && world_.now() >= attempt->started_at + options_.protection &&
             job->priority <= job_.priority && job->extras->preempt_count < options_.budget &&
             !(job->extras->preempted_at.valid() &&
               world_.now() < job->extras->preempted_at + options_.recent);
    });
  }
  /// The freed and free devices of one class of the node, theirs first.
  void try_set(const Node& node, const std::vector<const Attempt*>& chosen) {
    const Part& part = world_.state().class_of(job_).parts.front();
    for (uint32_t kind = 0; kind < world_.state().device_classes.size(); ++kind) {
      uint64_t theirs = 0;
      uint64_t free = 0;
      for (std::size_t i = 0; i < node.devices.size(); ++i) {
        if (node.devices[i].device_class != kind) continue;
        const uint64_t bit = uint64_t{1} << i;
        free |= node.free_mask & bit;
        for (const Attempt* attempt : chosen) theirs |= attempt->members[0].device_mask & bit;
      }
      MoveJobs command{
          .groups = {{.job = job_.id, .attempt = job_.attempt_count + 1}}, .by = "test", .why = {}};
      uint64_t mask = 0;
      for (const uint64_t from : {theirs, free}) {
        for (uint64_t rest = from; rest != 0 && std::popcount(mask) < part.gpu_count; rest &= rest - 1)
          mask |= rest & (~rest + 1);
      }
      if (std::popcount(mask) < part.gpu_count) continue;
      command.groups[0].members = {placement(node, mask)};
      for (const Attempt* attempt : chosen)
        command.groups[0].preemptions.push_back({.job = attempt->job, .attempt = attempt->number});
      place_next(chosen, 0, command);
    }
  }
  static MemberPlacement placement(const Node& node, uint64_t mask) {
    MemberPlacement made{.node = node.id, .device_mask = mask, .generations = {}};
    for (uint64_t rest = mask; rest != 0; rest &= rest - 1)
      made.generations.push_back(node.devices[static_cast<std::size_t>(std::countr_zero(rest))].generation);
    return made;
  }
  void place_next(const std::vector<const Attempt*>& chosen, std::size_t index, const MoveJobs& command) {
    const State& state = world_.state();
    if (index == chosen.size()) {
      Events events;
      if (decide(state, command, {.sequence = state.last.sequence + 1, .at = world_.now()}, events).rejection)
        return;
      MovePrice price{.moves = static_cast<int64_t>(chosen.size())};
      for (const Attempt* attempt : chosen) {
        const Job* job = state.jobs.find(attempt->job);
        const Time since = std::max(attempt->started_at, job->extras->saved_at);
        const int64_t gpus = std::popcount(attempt->members[0].device_mask);
        price.lost_gpu_ms += gpus * (world_.now() - since).ms();
        price.ended_before += job->extras->preempt_count;
        price.gpus += gpus;
      }
      if (!best_ || price < *best_) best_ = price;
      return;
    }
    const Part& part = state.class_of(*state.jobs.find(chosen[index]->job)).parts.front();
    for (const Node& to : state.nodes) {
      for (uint32_t kind = 0; kind < state.device_classes.size(); ++kind) {
        uint64_t free = to.free_mask;
        for (std::size_t i = 1; i < command.groups.size(); ++i) {
          if (command.groups[i].members[0].node == to.id) free &= ~command.groups[i].members[0].device_mask;
        }
        uint64_t mask = 0;
        for (std::size_t i = 0; i < to.devices.size() && std::popcount(mask) < part.gpu_count; ++i) {
          if (to.devices[i].device_class == kind && ((free >> i) & 1) != 0) mask |= uint64_t{1} << i;
        }
        if (std::popcount(mask) < part.gpu_count || (part.gpu_count == 0 && kind > 0)) continue;
        MoveJobs next = command;
        next.groups.push_back({.job = chosen[index]->job,
                               .attempt = chosen[index]->number + 1,
                               .members = {placement(to, mask)},
                               .preemptions = {}});
        place_next(chosen, index + 1, next);
      }
    }
  }

  const World& world_;
  const MoveOptions& options_;
  const Job& job_;
  std::optional<MovePrice> best_;
};

class RandomMoves : public ::testing::TestWithParam<uint64_t> {};

// The same lowest price as trying everything, always; and what is proposed is carried out.
/// A few nodes that jobs filled, and on which some have ended since.
void scatter(TestEngine& engine, Prng& prng) {
  const TenantId batch{engine.apply(CreateTenant{.name = "batch", .allow_preemption = true}).first_id};
  const auto count = static_cast<int>(prng.between(2, 4));
  for (int i = 0; i < count; ++i) {
    engine.add_node("n" + std::to_string(i),
                    {.gpus = static_cast<int>(prng.between(2, 5)),
                     .model = prng.chance(300) ? "NVIDIA L4" : "NVIDIA A100-SXM4-80GB",
                     .cpu_milli = prng.chance(500) ? 8'000 : 64'000});
  }
  std::vector<JobId> jobs;
  for (int i = 0; i < 14; ++i) {
    Want want{.gpus = static_cast<int32_t>(prng.between(0, 3)),
              .cpu_milli = static_cast<int32_t>(prng.between(0, 3) * 1000),
              .model = prng.chance(200) ? "A100" : "",
              .priority = static_cast<int32_t>(prng.between(0, 1)),
              .tenant = prng.chance(850) ? batch : kDefaultTenant};
    const JobId job = engine.submit(want);
    engine.cycle();
    if (engine.state_of(job) != JobState::kScheduled) {
      engine.apply(CancelJob{.job = job});
      continue;
    }
    engine.started(job);
    engine.advance(seconds(prng.between(1, 50)));
    if (prng.chance(200))
      engine.apply(
          CheckpointSaved{.job = job, .attempt = 1, .node = engine.job(job).node, .age = Duration{}});
    jobs.push_back(job);
  }
  for (const JobId job : jobs) {
    if (prng.chance(550)) engine.finish(job);
  }
}

TEST_P(RandomMoves, CostAsLittleAsAnythingThatHolds) {
  Prng prng(GetParam());
  int proposed = 0;
  for (int round = 0; round < 24; ++round) {
    TestEngine engine;
    scatter(engine, prng);
    const JobId waits = engine.submit({.gpus = static_cast<int32_t>(prng.between(3, 5)),
                                       .cpu_milli = static_cast<int32_t>(prng.between(0, 4) * 1000),
                                       .model = prng.chance(300) ? "A100" : "",
                                       .priority = static_cast<int32_t>(prng.between(0, 1))});
    engine.cycle();
    if (engine.state_of(waits) != JobState::kPending) continue;
    const World world = world_of(engine);
    const MoveOptions options{.only = waits, .moves_max = 4};
    const MovePlan plan = moves_in(world, options);
    ASSERT_FALSE(plan.stopped_early);
    const WaitCode code = world.planner().reason(world.state().jobs.find(waits)->job_class).code;
    const bool for_room = code == WaitCode::kGpusBusy || code == WaitCode::kCpuBusy ||
                          code == WaitCode::kMemoryBusy || code == WaitCode::kNodeFull;
    std::optional<MovePrice> lowest;
    if (for_room) lowest = Everything(world, options, *world.state().jobs.find(waits)).lowest();
    ASSERT_EQ(plan.proposals.empty(), !lowest.has_value()) << "round " << round;
    if (plan.proposals.empty()) {
      EXPECT_FALSE(describe(world.state(), plan.unmoved.at(0)).empty());
      continue;
    }
    ++proposed;
    const MoveProposal& found = plan.proposals.front();
    EXPECT_EQ(found.price, *lowest) << "round " << round;
    MoveJobs command = found.command;
    command.by = "ana";
    ASSERT_FALSE(engine.apply(command).rejection.has_value());
    for (const Move& move : found.moves) engine.ended(move.job, {.cause = EndCause::kStopped, .detail = {}});
    engine.release_all();
    engine.cycle();
    EXPECT_EQ(engine.state_of(waits), JobState::kScheduled);
    engine.advance(limits::kBackoffFirst);
    engine.cycle();
    for (const Move& move : found.moves) {
      EXPECT_EQ(engine.state_of(move.job), JobState::kScheduled);
      EXPECT_EQ(engine.job(move.job).node, move.to);
    }
  }
  RecordProperty("proposed", proposed);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomMoves, ::testing::Range<uint64_t>(1, 25));

}  // namespace
}  // namespace gpusched::forecast
