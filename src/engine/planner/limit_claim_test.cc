#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/test_tasks.h"

// In random worlds in which work ends when its limit says: who waits first below a limit starts by when
// enough of it is back, whatever comes later, of its own tenant, of one beside it or of the same pool, tasks
// of users too, which pass each other. There are always nodes for it. GPUs are in thousandths.
namespace gpusched {
namespace {

using testing::TestEngine;

struct Running {
  JobId job;
  Time end;
  int64_t milli = 0;
  TenantId tenant;
};

enum class Bound : uint8_t { kTenant, kParent, kJobs, kPool, kTenantAndParent, kTenantAndPool };

class LimitedWorld {
 public:
  LimitedWorld(Bound bound, uint64_t seed, bool has_tasks)
      : bound_(bound),
        prng_(seed),
        tasks_(seed),
        has_tasks_(has_tasks),
        engine_(has_tasks ? testing::policies_with_tasks(testing::RandomTasks::kWeightMax)
                          : policy::default_policies()) {
    EngineConfig config{.feature_level = kFeatureLevel, .policy = {.run_times = "limits"}};
    if (has_pool()) config.pools = {.online_milli = 800, .batch_milli = 200};
    engine_.apply(Configure{.config = config});
    for (int i = 0; i < 12; ++i) engine_.add_node("n" + std::to_string(i), {.gpus = 4});
    Limits limits;
    const int64_t gpus = has_pool() ? 9 : prng_.between(5, 9);
    most_ = gpus * kMilliPerGpu;
    const bool below = bound == Bound::kParent || bound == Bound::kTenantAndParent;
    if (bound == Bound::kTenant || below) limits.set(Resource::kGpus, gpus);
    if (bound == Bound::kJobs) limits.set(Resource::kJobs, most_ = prng_.between(2, 4));
    const TenantId top = engine_.add_tenant("lab", {}, limits);
    tenants_ = {top};
    Limits own;
    if (bound == Bound::kTenantAndParent || bound == Bound::kTenantAndPool) {
      const int64_t own_gpus = prng_.between(3, gpus);
      own.set(Resource::kGpus, own_gpus);
      own_most_ = own_gpus * kMilliPerGpu;
    }
    const TenantId above = below ? top : TenantId{};
    if (below || bound == Bound::kTenantAndPool)
      tenants_ = {engine_.add_tenant("a", above, own), engine_.add_tenant("b", above)};
  }

  void run() {
    for (int i = 0; i < 40 && used() < most_ - needs(kMilliPerGpu); ++i) submit_some();
    for (const JobId before : std::exchange(waiting_, {})) engine_.apply(CancelJob{.job = before});
    const int64_t wanted = prng_.between(2, 4);
    const int64_t needed = needs(wanted * kMilliPerGpu);
    if (needed > std::min(most_, own_most_)) return;
    const Time promised = start_of(needed);
    with_tasks += std::ranges::any_of(running_, is_task) ? 1 : 0;
    const JobId first = submit(wanted, tenants_.front());
    while (engine_.state_of(first) == JobState::kPending && engine_.now() < promised) {
      engine_.advance(minutes(1));
      end_due();
      for (int64_t more = prng_.between(0, 2); more > 0; --more) submit_some();
      look();
    }
    EXPECT_NE(engine_.state_of(first), JobState::kPending);
  }

  static inline int with_tasks = 0;

 private:
  bool has_pool() const { return bound_ == Bound::kPool || bound_ == Bound::kTenantAndPool; }
  static bool is_task(const Running& one) { return one.milli % kMilliPerGpu != 0; }
  int64_t needs(int64_t milli) const { return bound_ == Bound::kJobs ? 1 : milli; }
  int64_t used() const {
    int64_t sum = 0;
    for (const Running& one : running_) sum += needs(one.milli);
    return sum;
  }
  /// Use by the first tenant, whose limit may be one of its own.
  int64_t used_by_first() const {
    int64_t sum = 0;
    for (const Running& one : running_) sum += one.tenant == tenants_.front() ? needs(one.milli) : 0;
    return sum;
  }
  /// When so much is back, if nothing else came.
  Time start_of(int64_t wanted) const {
    std::vector<Running> ends = running_;
    std::sort(ends.begin(), ends.end(), [](const Running& a, const Running& b) { return a.end < b.end; });
    int64_t left = used(), own = used_by_first();
    Time at = engine_.now();
    for (const Running& one : ends) {
      if (left + wanted <= most_ && own + wanted <= own_most_) return at;
      left -= needs(one.milli);
      own -= one.tenant == tenants_.front() ? needs(one.milli) : 0;
      at = one.end;
    }
    return at;
  }
  void submit_some() {
    const int64_t gpus = prng_.between(1, 3);
    const TenantId tenant = tenants_[prng_.below(tenants_.size())];
    if (!has_tasks_ || !tasks_.prng().chance(500)) {
      submit(gpus, tenant);
      return;
    }
    Prng& prng = tasks_.prng();
    JobRequest request = testing::request_of({.gpus = 1,
                                              .max_runtime = minutes(prng_.between(3, 120)),
                                              .work = WorkClass::kBatch,
                                              .gpu_milli = static_cast<int32_t>(prng.between(4, 9) * 100),
                                              .gpu_share_mb = prng.between(1, 4) * 8'000});
    request.spec = tasks_.some_spec();
    waiting_.emplace_back(engine_.apply(SubmitJobs{.tenant = tenant, .jobs = {request}}).first_id);
    look();
  }
  JobId submit(int64_t gpus, TenantId tenant) {
    const JobId job = engine_.submit({.gpus = static_cast<int32_t>(gpus),
                                      .tenant = tenant,
                                      .max_runtime = minutes(prng_.between(3, 120)),
                                      .work = WorkClass::kBatch});
    waiting_.push_back(job);
    look();
    return job;
  }
  void look() {
    engine_.cycle();
    std::erase_if(waiting_, [&](JobId id) {
      if (engine_.state_of(id) != JobState::kScheduled) return false;
      engine_.started(id);
      const int64_t milli = total_of(engine_.state().class_of(engine_.job(id)).parts).gpu_thousandths();
      running_.push_back({.job = id,
                          .end = engine_.now() + engine_.job(id).max_runtime,
                          .milli = milli,
                          .tenant = engine_.job(id).tenant});
      return true;
    });
  }
  void end_due() {
    std::erase_if(running_, [&](const Running& one) {
      if (one.end > engine_.now()) return false;
      engine_.finish(one.job);
      return true;
    });
  }

  const Bound bound_;
  Prng prng_;
  testing::RandomTasks tasks_;
  const bool has_tasks_;
  TestEngine engine_;
  std::vector<TenantId> tenants_;
  std::vector<JobId> waiting_;
  std::vector<Running> running_;
  int64_t most_ = 0;
  int64_t own_most_ = INT64_MAX;  ///< Limit of the first tenant alone.
};

class LimitClaims : public ::testing::TestWithParam<std::tuple<Bound, bool>> {};

TEST_P(LimitClaims, NothingThatComesLaterDelaysTheFirst) {
  const auto [bound, has_tasks] = GetParam();
  LimitedWorld::with_tasks = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    LimitedWorld(bound, seed, has_tasks).run();
    if (HasFailure()) return;
  }
  if (has_tasks) {
    EXPECT_GT(LimitedWorld::with_tasks, 50);
  }
}

INSTANTIATE_TEST_SUITE_P(Bounds, LimitClaims,
                         ::testing::Combine(::testing::Values(Bound::kTenant, Bound::kParent, Bound::kJobs,
                                                              Bound::kPool, Bound::kTenantAndParent,
                                                              Bound::kTenantAndPool),
                                            ::testing::Bool()));

}  // namespace
}  // namespace gpusched
