#include "api/views/page_scan.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "base/prng.h"
#include "base/queue_limits.h"
#include "engine/testing/test_engine.h"

namespace gpusched::api {
namespace {

using testing::TestEngine;

/// Jobs of three tenants, enough that a page takes several steps; some are cancelled.
class PageScanTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kJobs = 3 * limits::kScanStepJobs;

  PageScanTest() {
    for (const char* name : {"a", "b"}) tenants_.push_back(engine_.add_tenant(name));
    for (std::size_t i = 0; i < kJobs; ++i) {
      const JobId job = engine_.submit({.cpu_milli = 1'000, .tenant = tenants_[i % 100 == 0 ? 1 : 0]});
      if (i % 7 == 0) engine_.apply(CancelJob{.job = job});
    }
  }
  Observer::View view() const { return {.state = engine_.state(), .reasons = reasons_, .position = 1}; }
  static bool fits(const JobFilter& filter, TenantId tenant, const Job& job) {
    return (!tenant.valid() || job.tenant == tenant) && (!filter.state || job.state == *filter.state);
  }
  /// In one walk.
  std::vector<JobId> expected(const JobFilter& filter, TenantId tenant) const {
    std::vector<JobId> ids;
    int64_t skip = filter.offset;
    engine_.state().jobs.for_each_newest_first(filter.before, [&](const Job& job) {
      if (!fits(filter, tenant, job)) return true;
      if (skip-- > 0) return true;
      if (std::ssize(ids) == filter.limit) return false;
      ids.push_back(job.id);
      return true;
    });
    return ids;
  }

  TestEngine engine_;
  std::vector<TenantId> tenants_;
  std::vector<WaitReason> reasons_;
};

TEST_F(PageScanTest, FindsInStepsWhatOneWalkFinds) {
  Prng prng(3);
  for (int round = 0; round < 60; ++round) {
    JobFilter filter{.limit = prng.chance(300) ? 100'000 : prng.between(0, 300),
                     .offset = prng.between(0, 50)};
    if (prng.chance(600)) filter.state = prng.chance(500) ? JobState::kCancelled : JobState::kPending;
    if (prng.chance(100)) filter.state = JobState::kRunning;
    if (prng.chance(300)) {
      filter.before = JobId{static_cast<uint64_t>(prng.between(1, kJobs))};
      filter.offset = 0;
    }
    const TenantId tenant = prng.chance(500) ? tenants_[prng.below(2)] : TenantId{};
    PageScan scan(shared_token_caller(), filter, tenant);
    while (scan.step(view())) {
    }
    const JobPage page = std::move(scan).take();
    std::vector<JobId> ids;
    for (const JobView& job : page.jobs) ids.push_back(job.id);
    EXPECT_EQ(ids, expected(filter, tenant));
  }
}

TEST_F(PageScanTest, ShowsCallersWithoutACredentialOnlyOpenTenantsJobs) {
  engine_.apply(UpdateTenant{.tenant = tenants_[1], .given = kTenantAnonymous, .anonymous = true});
  std::vector<JobId> open;
  engine_.state().jobs.for_each_newest_first({}, [&](const Job& job) {
    if (job.tenant == tenants_[1]) open.push_back(job.id);
    return true;
  });
  for (const std::optional<JobState> state :
       {std::optional<JobState>(), std::optional(JobState::kCancelled)}) {
    PageScan scan(anonymous_caller(), {.state = state, .limit = 100'000}, TenantId{});
    while (scan.step(view())) {
    }
    const JobPage page = std::move(scan).take();
    std::vector<JobId> ids;
    for (const JobView& job : page.jobs) ids.push_back(job.id);
    std::vector<JobId> wanted = open;
    std::erase_if(wanted, [&](JobId id) { return state && engine_.job(id).state != *state; });
    ASSERT_FALSE(wanted.empty());
    EXPECT_EQ(ids, wanted);
    EXPECT_EQ(page.total, std::ssize(wanted)) << "the number of others' jobs is theirs too";
  }
}

TEST_F(PageScanTest, EndsAPageByWhatTheCallerMayKnowOfAlone) {
  engine_.apply(UpdateTenant{.tenant = tenants_[1], .given = kTenantAnonymous, .anonymous = true});
  constexpr int64_t kLookedMax = 5;  // Between two of its jobs are 99 of others.
  std::vector<JobId> open;
  engine_.state().jobs.for_each_newest_first({}, [&](const Job& job) {
    if (job.tenant == tenants_[1]) open.push_back(job.id);
    return true;
  });
  JobId before;
  for (std::size_t page = 0; page < 3; ++page) {
    PageScan scan(anonymous_caller(), {.limit = 10, .before = before, .name = "nobody"}, TenantId{},
                  kLookedMax);
    while (scan.step(view())) {
    }
    before = std::move(scan).take().next;
    EXPECT_EQ(before, open.at((page + 1) * kLookedMax - 1));
  }
}

TEST_F(PageScanTest, NamesNoNextPageThatWouldBeEmptyForTheCaller) {
  TestEngine engine;
  const TenantId hidden = engine.add_tenant("hidden"), open = engine.add_tenant("open");
  engine.apply(UpdateTenant{.tenant = open, .given = kTenantAnonymous, .anonymous = true});
  engine.submit({.cpu_milli = 1'000, .tenant = hidden});
  for (int i = 0; i < 2; ++i) engine.submit({.cpu_milli = 1'000, .tenant = open});
  const JobId newest = engine.submit({.cpu_milli = 1'000, .tenant = open});
  const auto page_of = [&](CallerPtr caller) {
    PageScan scan(std::move(caller), {.limit = 2, .before = newest}, TenantId{});
    while (scan.step({.state = engine.state(), .reasons = reasons_, .position = 1})) {
    }
    return std::move(scan).take();
  };
  EXPECT_TRUE(page_of(shared_token_caller()).next.valid());
  const JobPage page = page_of(anonymous_caller());
  EXPECT_EQ(page.jobs.size(), 2U);
  EXPECT_FALSE(page.next.valid());
}

TEST_F(PageScanTest, LooksAtABoundedNumberOfJobsInOneStep) {
  int steps = 0;
  PageScan rare(shared_token_caller(), {.state = JobState::kFailed, .limit = 10}, TenantId{});
  while (rare.step(view())) ++steps;
  EXPECT_EQ(steps, 0);  // None is in that state, which is known.
  PageScan named(shared_token_caller(), {.limit = 10, .name = "nobody"}, TenantId{});
  while (named.step(view())) ++steps;
  EXPECT_GE(steps, static_cast<int>(kJobs / limits::kScanStepJobs) - 1);
}

TEST_F(PageScanTest, GoesOnBehindWhereItWasWhenTheStateMovesOn) {
  PageScan scan(shared_token_caller(), {.limit = 1'000'000}, TenantId{});
  std::vector<JobId> fresh;
  while (scan.step(view())) fresh.push_back(engine_.submit({.cpu_milli = 1'000}));
  ASSERT_FALSE(fresh.empty());
  const JobPage page = std::move(scan).take();
  EXPECT_EQ(page.jobs.size(), kJobs);
  for (std::size_t i = 1; i < page.jobs.size(); ++i) ASSERT_LT(page.jobs[i].id, page.jobs[i - 1].id);
}

}  // namespace
}  // namespace gpusched::api
