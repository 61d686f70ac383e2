#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/prng.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/test_tasks.h"

// In random worlds, some of them with tasks of users on shares of GPUs: an elastic gang takes beyond its
// least nothing of what others who wait are owed, by a guarantee or by a pool that lends. In thousandths of
// GPUs.
namespace gpusched {
namespace {

using testing::TestEngine;
using testing::Want;

class OwingWorld {
 public:
  OwingWorld(uint64_t seed, bool has_tasks)
      : prng_(seed),
        tasks_(seed),
        has_tasks_(has_tasks),
        engine_(has_tasks ? testing::policies_with_tasks(testing::RandomTasks::kWeightMax)
                          : policy::default_policies()) {
    EngineConfig config{.feature_level = kFeatureLevel};
    if (prng_.chance(500)) {
      const int64_t online = prng_.between(1, 9) * 100;
      config.pools = {.online_milli = online, .batch_milli = 1'000 - online, .lend = true};
    }
    engine_.apply(Configure{.config = config});
    for (int64_t count = prng_.between(2, 4); count > 0; --count) {
      const int64_t gpus = prng_.between(2, 8);
      capacity_ += gpus * kMilliPerGpu;
      engine_.add_node("n" + std::to_string(capacity_), {.gpus = static_cast<int>(gpus)});
    }
    const TenantId lab = tenant("lab", {});
    tenants_ = {lab, tenant("a", lab), tenant("b", lab), tenant("c", {}), tenant("d", {})};
    for (const TenantId one : tenants_) {
      if (one != lab && prng_.chance(500)) guarantee(one, prng_.between(1, 4));
    }
    if (prng_.chance(500)) guarantee(lab, prng_.between(8, 10));
    for (int64_t count = prng_.between(0, 6); count > 0; --count) {
      run(engine_.submit(some_job(3)));
      if (has_tasks_ && tasks_.prng().chance(600)) run(submit_task());
    }
    // None of these fits: they wait, or others are ended for them.
    for (int64_t count = prng_.between(0, 3); count > 0; --count) {
      engine_.submit(some_job(8));
      if (has_tasks_ && tasks_.prng().chance(600)) submit_task();
    }
    engine_.cycle();
  }

  void check() {
    Want want = some_job(2);
    want.gpus = std::max(want.gpus, 1);
    want.members = static_cast<int32_t>(prng_.between(1, 2));
    want.members_max = want.members + static_cast<int32_t>(prng_.between(1, 8));
    const JobId gang = engine_.submit(want);
    const std::map<TenantId, int64_t> owed = owed_beside(want.tenant);
    const bool other_waits = waits(want.work == WorkClass::kOnline ? WorkClass::kBatch : WorkClass::kOnline);
    const int64_t free = capacity_ - held(WorkClass::kOnline) - held(WorkClass::kBatch);
    const int64_t own = own_idle(want.tenant);
    const int64_t own_room = room(want.work);
    const int64_t other_room = room(want.work == WorkClass::kOnline ? WorkClass::kBatch : WorkClass::kOnline);
    const std::vector<PlanGroup> groups = engine_.cycle();
    if (groups.size() != 1 || groups.front().job != gang) return;  // Others' shares are not told apart here.
    const auto members = static_cast<int64_t>(groups.front().members.size());
    if (members == want.members) return;
    ++grown;
    grown_beside_tasks += runs_tasks() ? 1 : 0;
    const int64_t taken = members * want.gpus * kMilliPerGpu;
    int64_t left = free;
    for (const auto& [tenant, idle] : owed) left -= idle;
    if (!owed.empty()) {
      ++beside_owed;
      EXPECT_LE(taken, std::max(own, left)) << "of what others are guaranteed";
    }
    if (!engine_.state().config.pools.lends() || !other_waits) return;
    ++beside_pool;
    EXPECT_LE(taken, std::max(own_room, free - other_room)) << "of the other pool";
  }

  static inline int grown = 0;
  static inline int grown_beside_tasks = 0;
  static inline int beside_owed = 0;
  static inline int beside_pool = 0;

 private:
  TenantId tenant(std::string_view name, TenantId parent) { return engine_.add_tenant(name, parent); }
  void guarantee(TenantId tenant, int64_t gpus) {
    engine_.apply(UpdateTenant{.tenant = tenant, .given = kTenantGuaranteeGpus, .guarantee = {.gpus = gpus}});
  }
  Want some_job(int64_t gpus_max) {
    return {.gpus = static_cast<int32_t>(prng_.between(0, gpus_max)),
            .tenant = tenants_[prng_.below(tenants_.size())],
            .work = prng_.chance(500) ? WorkClass::kOnline : WorkClass::kBatch};
  }
  void run(JobId job) {
    engine_.cycle();
    if (engine_.state_of(job) == JobState::kScheduled) engine_.started(job);
  }
  JobId submit_task() {
    Prng& prng = tasks_.prng();
    JobRequest request =
        testing::request_of({.gpus = 1,
                             .work = prng.chance(500) ? WorkClass::kOnline : WorkClass::kBatch,
                             .gpu_milli = static_cast<int32_t>(prng.between(1, 6) * 100),
                             .gpu_share_mb = prng.between(1, 4) * 8'000});
    request.spec = tasks_.some_spec();
    const TenantId tenant = tenants_[prng.below(tenants_.size())];
    return JobId{engine_.apply(SubmitJobs{.tenant = tenant, .jobs = {request}}).first_id};
  }
  bool runs_tasks() const {
    const auto& attempts = engine_.state().attempts;
    return std::any_of(attempts.begin(), attempts.end(),
                       [](const auto& entry) { return entry.second.members.front().gpu_milli > 0; });
  }
  template <typename Visit>
  void for_each_waiting(Visit&& visit) const {
    engine_.state().jobs.for_each([&](const Job& job) {
      const std::vector<Part>& parts = engine_.state().class_of(job).parts;
      if (job.is_queued() && total_of(parts).has_gpus()) visit(job, work_of(parts));
      return true;
    });
  }
  bool waits(WorkClass work) const {
    bool found = false;
    for_each_waiting([&](const Job&, WorkClass of) { found = found || of == work; });
    return found;
  }
  bool is_in(TenantId tenant, TenantId above) const {
    for (const Tenant* at = engine_.state().find_tenant(tenant); at != nullptr;
         at = engine_.state().find_tenant(at->parent))
      if (at->id == above) return true;
    return false;
  }
  int64_t idle(const Tenant& tenant) const {
    const int64_t held = tenant.usage.gpu_thousandths() - tenant.going.gpu_thousandths();
    return std::max<int64_t>(tenant.guarantee.gpus * kMilliPerGpu - held, 0);
  }
  /// Idle guarantees of jobs that wait beside the tenant, by the topmost tenant that is guaranteed something.
  std::map<TenantId, int64_t> owed_beside(TenantId tenant) const {
    std::map<TenantId, int64_t> owed;
    for_each_waiting([&](const Job& job, WorkClass) {
      const Tenant* top = nullptr;
      for (const Tenant* at = engine_.state().find_tenant(job.tenant); at != nullptr;
           at = engine_.state().find_tenant(at->parent))
        if (at->guarantee.gpus > 0) top = at;
      if (top != nullptr && !is_in(tenant, top->id)) owed[top->id] = idle(*top);
    });
    std::erase_if(owed, [](const auto& entry) { return entry.second == 0; });
    return owed;
  }
  int64_t own_idle(TenantId tenant) const {
    int64_t most = 0;
    for (const Tenant* at = engine_.state().find_tenant(tenant); at != nullptr;
         at = engine_.state().find_tenant(at->parent))
      most = std::max(most, idle(*at));
    return most;
  }
  int64_t held(WorkClass work) const {
    int64_t milli = 0;
    const State& state = engine_.state();
    for (const auto& [key, attempt] : state.attempts) {
      if (attempt.abandoned || attempt.stop == StopReason::kPreempt) continue;
      const Job& job = state.job_at(attempt.job);
      if (work_of(state.class_of(job).parts) == work) milli += state.held_by(job).gpu_thousandths();
    }
    for (const auto& [id, promise] : state.promises)
      milli += promise.work == work ? promise.amount.gpu_thousandths() : 0;
    return milli;
  }
  int64_t room(WorkClass work) const {
    const bool online = work == WorkClass::kOnline;
    const int64_t share = engine_.state().config.pools.gpus_of(online, capacity_ / kMilliPerGpu);
    return std::max<int64_t>(share * kMilliPerGpu - held(work), 0);
  }

  Prng prng_;
  testing::RandomTasks tasks_;
  const bool has_tasks_;
  TestEngine engine_;
  std::vector<TenantId> tenants_;
  int64_t capacity_ = 0;
};

class GangGrowth : public ::testing::TestWithParam<bool> {};

TEST_P(GangGrowth, TakesNothingThatOthersWhoWaitAreOwed) {
  OwingWorld::grown = OwingWorld::grown_beside_tasks = OwingWorld::beside_owed = OwingWorld::beside_pool = 0;
  for (uint64_t seed = 1; seed <= 1'200 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    OwingWorld(seed, GetParam()).check();
  }
  EXPECT_GT(OwingWorld::grown, 100);
  EXPECT_GT(OwingWorld::beside_owed, 20);
  EXPECT_GT(OwingWorld::beside_pool, 20);
  if (GetParam()) {
    EXPECT_GT(OwingWorld::grown_beside_tasks, 50);
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, GangGrowth, ::testing::Bool());

}  // namespace
}  // namespace gpusched
