#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "engine/testing/test_engine.h"

// Who is ended for a job, in small worlds: compared with every set of jobs that might be.
namespace gpusched {
namespace {

using testing::TestEngine;

constexpr int kWorlds = 600;
constexpr Duration kProtection = seconds(60);
constexpr Duration kSilentMax = minutes(5);

struct Running {
  JobId job;
  NodeId node;
  int32_t gpus = 0;
  int32_t cpu_milli = 0;
  int64_t memory_mb = 0;
  Time since;
  bool permitted = false;
};

/// What ending these loses, by the first two of the figures that the policy compares.
struct Loss {
  int64_t counted_gpu_ms = 0;
  int64_t real_gpu_ms = 0;
  friend auto operator<=>(const Loss&, const Loss&) = default;
};

class SmallWorld {
 public:
  explicit SmallWorld(uint64_t seed) : prng_(seed) {
    engine_.apply(Configure{.config = {.feature_level = kFeatureLevel}});
    meek_ = tenant("meek", true, false);
    firm_ = tenant("firm", false, false);
    lord_ = tenant("lord", false, true);
    const int64_t nodes = prng_.between(1, 3);
    for (int64_t i = 0; i < nodes; ++i) {
      engine_.add_node("n" + std::to_string(i), {.gpus = static_cast<int>(prng_.between(0, 4)),
                                                 .cpu_milli = prng_.between(4, 8) * 1'000,
                                                 .memory_mb = prng_.between(4, 8) * 1'000});
    }
    for (int64_t count = prng_.between(1, 6); count > 0; --count) run_one();
    engine_.advance(minutes(prng_.between(0, 8)));
    for (Running& one : running_) {
      const Job& job = engine_.job(one.job);
      one.permitted = job.tenant == meek_ && !job.preemption_exempt && job.priority < kPriority &&
                      engine_.now() >= one.since + kProtection;
    }
  }

  void check() {
    wanted_ = {.gpus = static_cast<int32_t>(prng_.between(0, 4)),
               .cpu_milli = static_cast<int32_t>(prng_.between(0, 6)) * 1'000,
               .memory_mb = prng_.between(0, 6) * 1'000,
               .priority = kPriority,
               .tenant = lord_};
    const JobId asking = engine_.submit(wanted_);
    const std::vector<PlanGroup> groups = engine_.cycle();
    const std::optional<Loss> least = least_loss();
    if (groups.empty()) {
      EXPECT_EQ(least, std::nullopt) << "nobody is ended, and somebody may be";
      return;
    }
    ASSERT_EQ(groups.size(), 1U);
    ASSERT_EQ(groups.front().job, asking);
    if (groups.front().preemptions.empty()) return;  // It fits.
    const NodeId node = groups.front().members.front().node;
    std::vector<const Running*> chosen;
    for (const Preemption& one : groups.front().preemptions) {
      const auto at = std::ranges::find(running_, one.job, &Running::job);
      ASSERT_NE(at, running_.end());
      EXPECT_TRUE(at->permitted);
      EXPECT_EQ(at->node, node) << "what it gives back is of no use";
      chosen.push_back(&*at);
    }
    ++preemptions;
    EXPECT_TRUE(suffices(node, chosen));
    for (std::size_t left_out = 0; left_out < chosen.size(); ++left_out) {
      std::vector<const Running*> fewer = chosen;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(left_out));
      EXPECT_FALSE(suffices(node, fewer)) << "one is ended for nothing";
    }
    EXPECT_EQ(loss_of(chosen), least);
  }

  static inline int preemptions = 0;

 private:
  static constexpr int32_t kPriority = 10;

  TenantId tenant(std::string_view name, bool allow, bool can) {
    return TenantId{engine_
                        .apply(CreateTenant{
                            .name = std::string(name), .allow_preemption = allow, .can_preempt_others = can})
                        .first_id};
  }
  void run_one() {
    const Running wanted{.gpus = static_cast<int32_t>(prng_.between(0, 2)),
                         .cpu_milli = static_cast<int32_t>(prng_.between(0, 3)) * 1'000,
                         .memory_mb = prng_.between(0, 3) * 1'000};
    const JobId id = engine_.submit({.gpus = wanted.gpus,
                                     .cpu_milli = wanted.cpu_milli,
                                     .memory_mb = wanted.memory_mb,
                                     .priority = static_cast<int32_t>(prng_.between(8, 11)),
                                     .tenant = prng_.chance(200) ? firm_ : meek_,
                                     .preemption_exempt = prng_.chance(50)});
    engine_.cycle();
    if (engine_.state_of(id) != JobState::kScheduled) {
      engine_.apply(CancelJob{.job = id});
      return;
    }
    engine_.started(id);
    Running one = wanted;
    one.job = id;
    one.node = engine_.job(id).node;
    one.since = engine_.now();
    running_.push_back(one);
    engine_.advance(seconds(prng_.between(0, 100)));
  }
  bool suffices(NodeId id, const std::vector<const Running*>& gone) const {
    const Node& node = engine_.node(id);
    int64_t gpus = std::ssize(node.devices);
    int64_t cpu_milli = node.cpu_milli, memory_mb = node.memory_mb;
    for (const Running& one : running_) {
      if (one.node != id || std::ranges::find(gone, &one) != gone.end()) continue;
      gpus -= one.gpus;
      cpu_milli -= one.cpu_milli;
      memory_mb -= one.memory_mb;
    }
    return gpus >= wanted_.gpus && cpu_milli >= wanted_.cpu_milli && memory_mb >= wanted_.memory_mb;
  }
  Loss loss_of(const std::vector<const Running*>& gone) const {
    Loss loss;
    for (const Running* one : gone) {
      const Duration real = engine_.now() - one->since;
      loss.counted_gpu_ms += one->gpus * std::min(real, kSilentMax).ms();
      loss.real_gpu_ms += one->gpus * real.ms();
    }
    return loss;
  }
  /// Of all sets of whom it may end, on whatever node.
  std::optional<Loss> least_loss() const {
    std::optional<Loss> least;
    for (const Node& node : engine_.state().nodes) {
      std::vector<const Running*> here;
      for (const Running& one : running_) {
        if (one.node == node.id && one.permitted) here.push_back(&one);
      }
      for (uint32_t set = 1; set < (uint32_t{1} << here.size()); ++set) {
        std::vector<const Running*> gone;
        for (std::size_t i = 0; i < here.size(); ++i) {
          if (((set >> i) & 1) != 0) gone.push_back(here[i]);
        }
        if (!suffices(node.id, gone)) continue;
        const Loss loss = loss_of(gone);
        if (!least.has_value() || loss < *least) least = loss;
      }
    }
    return least;
  }

  Prng prng_;
  TestEngine engine_;
  TenantId meek_, firm_, lord_;
  std::vector<Running> running_;
  testing::Want wanted_;
};

TEST(FewestVictims, NobodyIsEndedForNothingAndNoOtherSetLosesLess) {
  SmallWorld::preemptions = 0;
  for (uint64_t seed = 1; seed <= kWorlds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SmallWorld(seed).check();
  }
  EXPECT_GT(SmallWorld::preemptions, kWorlds / 20);
}

}  // namespace
}  // namespace gpusched
