#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/prng.h"
#include "engine/testing/test_engine.h"

// In the long run tenants that always want more than they get have what their weights say, however long their
// jobs are: within kTolerance of it, once use was counted for several half-lives. All tenants' jobs are
// equally wide: narrow ones would also fill what wide ones leave, whoever's they are.
namespace gpusched {
namespace {

using testing::TestEngine;

constexpr double kTolerance = 0.1;

/// Tenants that always have jobs waiting, on a cluster whose work ends by chance.
class Hungry {
 public:
  explicit Hungry(uint64_t seed) : prng_(seed) {
    engine_.apply(Configure{.config = {.feature_level = kFeatureLevel,
                                       .use_half_life = hours(4),
                                       .policy = {.queue_order = "fair_share"}}});
    gpus_max_ = static_cast<int32_t>(prng_.between(1, 2));
    const auto nodes = prng_.between(2, 4);
    for (int64_t i = 0; i < nodes; ++i) {
      engine_.add_node("n" + std::to_string(i), {.gpus = 8, .cpu_milli = 8'000'000, .memory_mb = 8'000'000});
      gpus_ += 8;
    }
  }

  TenantId add(int64_t weight, TenantId parent = {}) {
    return TenantId{
        engine_
            .apply(CreateTenant{
                .name = "t" + std::to_string(++named_), .parent = parent, .weight_milli = weight * 1000})
            .first_id};
  }
  void add_hungry(TenantId tenant) {
    // Each has jobs of its own kind: short or long.
    tenants_.push_back({.tenant = tenant, .gpus_max = gpus_max_, .minutes_mean = prng_.between(5, 40)});
  }

  void run(Duration span) {
    const Time until = engine_.now() + span;
    while (engine_.now() < until) {
      feed();
      place();
      ASSERT_FALSE(ends_.empty());
      const auto [end, job] = *ends_.begin();
      ends_.erase(ends_.begin());
      const Duration step = end - engine_.now();
      for (Kind& kind : tenants_) kind.had_gpu_ms += kind.held * step.ms();
      engine_.advance(step);
      Kind& owner = kind_of(engine_.job(job).tenant);
      owner.held -= total_of(engine_.state().class_of(engine_.job(job)).parts).gpus;
      --owner.unfinished;
      engine_.finish(job);
    }
  }
  void forget() {
    for (Kind& kind : tenants_) kind.had_gpu_ms = 0;
  }
  /// Part of the use by all.
  double share_of(TenantId tenant) const {
    int64_t sum = 0;
    int64_t own = 0;
    for (const Kind& kind : tenants_) {
      sum += kind.had_gpu_ms;
      if (kind.tenant == tenant) own = kind.had_gpu_ms;
    }
    return static_cast<double>(own) / static_cast<double>(sum);
  }
  Prng& prng() { return prng_; }

 private:
  struct Kind {
    TenantId tenant;
    int32_t gpus_max = 1;
    int64_t minutes_mean = 10;
    int64_t unfinished = 0;
    int64_t held = 0;
    int64_t had_gpu_ms = 0;
  };

  Kind& kind_of(TenantId tenant) {
    return *std::find_if(tenants_.begin(), tenants_.end(),
                         [&](const Kind& kind) { return kind.tenant == tenant; });
  }
  void feed() {
    for (Kind& kind : tenants_) {
      // More than the whole cluster could take.
      for (; kind.unfinished < gpus_ + 8; ++kind.unfinished)
        engine_.submit({.gpus = static_cast<int32_t>(prng_.between(1, kind.gpus_max)),
                        .tenant = kind.tenant,
                        .max_runtime = hours(2)});
    }
  }
  void place() {
    for (const PlanGroup& group : engine_.cycle()) {
      engine_.started(group.job);
      Kind& owner = kind_of(engine_.job(group.job).tenant);
      owner.held += total_of(engine_.state().class_of(engine_.job(group.job)).parts).gpus;
      ends_.insert({engine_.now() + minutes(prng_.between(1, 2 * owner.minutes_mean)), group.job});
    }
  }

  Prng prng_;
  TestEngine engine_;
  std::vector<Kind> tenants_;
  std::set<std::pair<Time, JobId>> ends_;
  int64_t gpus_ = 0;
  int32_t gpus_max_ = 1;
  int named_ = 0;
};

class FairShareInTheLongRun : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FairShareInTheLongRun, GivesHungryTenantsWhatTheirWeightsSay) {
  Hungry cluster(GetParam());
  std::map<TenantId, int64_t> weights;
  const int64_t count = cluster.prng().between(2, 4);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t weight = cluster.prng().between(1, 4);
    const TenantId tenant = cluster.add(weight);
    weights[tenant] = weight;
    cluster.add_hungry(tenant);
  }
  cluster.run(hours(12));
  cluster.forget();
  cluster.run(hours(24));
  int64_t sum = 0;
  for (const auto& [tenant, weight] : weights) sum += weight;
  for (const auto& [tenant, weight] : weights) {
    const double due = static_cast<double>(weight) / static_cast<double>(sum);
    EXPECT_NEAR(cluster.share_of(tenant) / due, 1.0, kTolerance) << "weight " << weight << " of " << sum;
  }
}

TEST_P(FairShareInTheLongRun, DividesAParentsShareAmongItsChildren) {
  Hungry cluster(GetParam() + 100);
  const TenantId left = cluster.add(1);
  const TenantId right = cluster.add(cluster.prng().between(1, 2));
  const TenantId first = cluster.add(1, left);
  const TenantId second = cluster.add(2, left);
  for (const TenantId tenant : {first, second, right}) cluster.add_hungry(tenant);
  cluster.run(hours(12));
  cluster.forget();
  cluster.run(hours(24));
  const double of_left = cluster.share_of(first) + cluster.share_of(second);
  EXPECT_NEAR(cluster.share_of(first) / of_left, 1.0 / 3, kTolerance / 3);
  EXPECT_NEAR(cluster.share_of(second) / of_left, 2.0 / 3, kTolerance * 2 / 3);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FairShareInTheLongRun, ::testing::Range<uint64_t>(1, 9));

}  // namespace
}  // namespace gpusched
